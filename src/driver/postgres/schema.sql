-- The schema of holdfast in PostgreSQL: tables, and one function per verb. holdfast runs this itself when a
-- client finds no schema; 'holdfast schema' prints it for an administrator. It can be run again.
--
--   line     all that is kept of one name: kind, capacity, sums of its tickets, last fence; its cell
--   ticket   one place in a line: state 0 waits, 1 holds; flags 1 revoked (ends at its expiry), 2 kept
--   crowd    the waiting tickets of one client, line and ttl: they share one expiry
--   revoked  tickets that were taken out at once: their owners find them here if the message was lost
--   follow   clients that want to be told of every change of a line or its cell
--   mark     per bucket of names: the greatest fence of the lines that were removed
--   lease    mode=optimistic: all that is kept of one name
--
-- What serialises a line. Every function that changes a line locks its row first, and reads tickets only
-- after that, in a later statement. The functions are volatile, so in READ COMMITTED each statement has a
-- snapshot of its own, taken after the lock was granted: it sees all that the owner of the lock before us
-- committed. A lock alone makes no new version of a row, so in REPEATABLE READ and SERIALIZABLE an old
-- snapshot would pass unnoticed; therefore whoever changes tickets also updates the line's row, and the one
-- who waited gets error 40001, and repeats. Renewing changes no ticket but one's own, and takes no line:
-- it locks the ticket's row, as the removal of expired tickets does; whichever comes second sees the
-- outcome of the first (the row is gone, or its expiry has moved) and tests its condition again.
--
-- The short ways of join and leave are an UPDATE whose condition names only columns of the row that it locks,
-- because only those are tested again after a wait. A ticket is looked at after that.
--
-- Invariants: line.n, line.nw and line.sum count the tickets of state 1, of state 0, and the weights of
-- state 1; sum <= cap; line.soonest is not later than any expiry of state 1 (n > 0). A transaction is one
-- call of a function: a crash leaves a line as before or after. synchronous_commit=off would let a crash of
-- the server take back what was answered: it is overridden for the transaction.
--
-- Times are microseconds since 1970 by the server's clock, read by clock_timestamp(): now() stands still in a
-- transaction. ttl and keep are ms. A grant copies the crowd's expiry and moves nothing (G1). A fence is
-- greater than the line's last one and than the clock was (G2). A line goes ten minutes after its last use, by
-- holdfast.sweep, which first raises the mark of its bucket; a new line reads that mark under a lock.
--
-- A session keeps its plans, and a plan that was made while a table was nearly empty reads all of it. So each
-- verb is planned with enable_seqscan = off. What must read a whole table all the same seems dear then, and would
-- be compiled, for a second or more: there jit = off, too.
--
-- What is named without a schema is the server's own, whatever search_path the caller has: else operators of
-- others that fit better would be called, with our rights. What waits for a row gives up after a second, and is
-- sent again: other calls of the same client come after it.
--
-- Only ASCII, and no backslash in a literal: it is read in every encoding, and as every setting reads strings.
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SET LOCAL client_min_messages = warning;
SET LOCAL statement_timeout = 0;
SET LOCAL lock_timeout = 0;
SET LOCAL search_path = pg_catalog, pg_temp;
SELECT pg_advisory_xact_lock(7525353031127561076);
DO $$
BEGIN -- whoever was given the schema need not have the right to make one
    IF to_regnamespace('holdfast') IS NULL THEN
        CREATE SCHEMA holdfast;
    END IF;
END $$;
CREATE TABLE IF NOT EXISTS holdfast.format (version int8 PRIMARY KEY);
CREATE TABLE IF NOT EXISTS holdfast.mark (bucket int8 PRIMARY KEY, fence int8 NOT NULL) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS holdfast.line (
    id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ns bytea NOT NULL, name bytea NOT NULL,
    kind int8 NOT NULL DEFAULT 0, cap int8 NOT NULL DEFAULT 0,
    sum int8 NOT NULL DEFAULT 0, n int8 NOT NULL DEFAULT 0, nw int8 NOT NULL DEFAULT 0,
    seq int8 NOT NULL DEFAULT 0, fence int8 NOT NULL DEFAULT 0, soonest int8 NOT NULL DEFAULT 0,
    touched int8 NOT NULL DEFAULT 0, followed int8 NOT NULL DEFAULT 0,
    cell bytea, version int8 NOT NULL DEFAULT 0, cell_till int8,
    UNIQUE (ns, name)) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS holdfast.ticket (
    line int8, token bytea, state int8 NOT NULL, flags int8 NOT NULL DEFAULT 0, weight int8 NOT NULL,
    number int8 NOT NULL DEFAULT 0, fence int8 NOT NULL DEFAULT 0, expiry int8 NOT NULL DEFAULT 0,
    joined int8 NOT NULL, granted int8 NOT NULL DEFAULT 0, ttl int8 NOT NULL, client bytea NOT NULL,
    process int8 NOT NULL, owner int8 NOT NULL, pid int8 NOT NULL, host bytea NOT NULL,
    note bytea NOT NULL, hints bytea NOT NULL, sent int8 NOT NULL DEFAULT 0,
    PRIMARY KEY (line, token)) WITH (fillfactor = 70);
CREATE INDEX IF NOT EXISTS queue ON holdfast.ticket (line, number) WHERE state = 0;
CREATE TABLE IF NOT EXISTS holdfast.crowd (
    line int8, client bytea, ttl int8, till int8 NOT NULL, count int8 NOT NULL,
    PRIMARY KEY (line, client, ttl)) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS holdfast.revoked (line int8, token bytea, till int8 NOT NULL, PRIMARY KEY (line, token));
CREATE TABLE IF NOT EXISTS holdfast.follow (line int8, client bytea, till int8 NOT NULL, PRIMARY KEY (line, client));
INSERT INTO holdfast.mark SELECT i, 0 FROM generate_series(0, 1023) i ON CONFLICT DO NOTHING;

CREATE OR REPLACE FUNCTION holdfast.clock() RETURNS int8 LANGUAGE sql VOLATILE AS
$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8 $$;

CREATE OR REPLACE FUNCTION holdfast.bucket(p_ns bytea, p_name bytea) RETURNS int8 LANGUAGE sql IMMUTABLE AS
$$ SELECT (get_byte(h, 0) * 4 + get_byte(h, 1) % 4)::int8 FROM (SELECT sha256(p_ns || decode('00', 'hex') || p_name) h) s $$;

-- What is answered must not be taken back by a crash of the server.
CREATE OR REPLACE FUNCTION holdfast.durable() RETURNS text LANGUAGE sql VOLATILE AS
$$ SELECT CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END $$;

-- The row of a line, locked; id NULL: there is none, and none was to be made. The mark is read by a statement
-- after the one that made the row, and locked: whoever removed the line before has committed by then.
CREATE OR REPLACE FUNCTION holdfast.line_of(p_ns bytea, p_name bytea, p_make bool) RETURNS holdfast.line
LANGUAGE plpgsql AS $$
DECLARE l holdfast.line; f int8;
BEGIN
    LOOP
        SELECT * INTO l FROM holdfast.line x WHERE x.ns = p_ns AND x.name = p_name FOR UPDATE;
        IF FOUND OR NOT p_make THEN
            RETURN l;
        END IF;
        INSERT INTO holdfast.line (ns, name, touched) VALUES (p_ns, p_name, holdfast.clock()) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            SELECT m.fence INTO f FROM holdfast.mark m WHERE m.bucket = holdfast.bucket(p_ns, p_name) FOR SHARE;
            UPDATE holdfast.line x SET fence = f WHERE x.ns = p_ns AND x.name = p_name;
        END IF;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION holdfast.tell(p_client bytea, p_text text) RETURNS void LANGUAGE sql AS
$$ SELECT pg_notify('hf_' || encode(p_client, 'hex'), p_text) $$;

-- Of a line that is locked: writes it, and tells those that follow it.
CREATE OR REPLACE FUNCTION holdfast.save(l holdfast.line, p_now int8, p_changed bool) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE holdfast.line x SET kind = l.kind, cap = l.cap, sum = l.sum, n = l.n, nw = l.nw, seq = l.seq,
        fence = l.fence, soonest = l.soonest, touched = p_now, followed = l.followed
        WHERE x.id = l.id;
    IF p_changed AND l.followed > p_now THEN
        PERFORM holdfast.tell(f.client, 'f' || encode(l.name, 'hex')) FROM holdfast.follow f WHERE f.line = l.id AND f.till > p_now;
    END IF;
END $$;

CREATE OR REPLACE FUNCTION holdfast.dequeue(p_line int8, p_client bytea, p_ttl int8) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE holdfast.crowd c SET count = c.count - 1
        WHERE c.line = p_line AND c.client = p_client AND c.ttl = p_ttl AND c.count > 1;
    IF NOT FOUND THEN
        DELETE FROM holdfast.crowd c WHERE c.line = p_line AND c.client = p_client AND c.ttl = p_ttl;
    END IF;
END $$;

-- Of a line that is locked: whose time is over goes out, the head of the queue goes in while it fits (G3, G5),
-- and those whom it concerns are told, except the tickets in p_named, which the caller tells itself.
-- p_headed: the head may have changed. The caller saves.
CREATE OR REPLACE FUNCTION holdfast.admit(l holdfast.line, p_now int8, p_headed bool, p_named bytea)
RETURNS holdfast.line LANGUAGE plpgsql AS $$
DECLARE t holdfast.ticket; v_till int8; k int8;
BEGIN
    IF l.n > 0 AND p_now >= l.soonest THEN
        DELETE FROM holdfast.ticket x WHERE x.line = l.id AND x.state = 1 AND x.expiry <= p_now;
        SELECT count(*), coalesce(sum(x.weight), 0), coalesce(min(x.expiry), 0) INTO l.n, l.sum, l.soonest
            FROM holdfast.ticket x WHERE x.line = l.id AND x.state = 1;
    END IF;
    WHILE l.nw > 0 LOOP
        SELECT * INTO t FROM holdfast.ticket x WHERE x.line = l.id AND x.state = 0 ORDER BY x.number LIMIT 1;
        IF NOT FOUND THEN
            l.nw := 0;
            EXIT;
        END IF;
        SELECT c.till INTO v_till FROM holdfast.crowd c
            WHERE c.line = l.id AND c.client = t.client AND c.ttl = t.ttl;
        IF NOT FOUND OR v_till <= p_now THEN
            DELETE FROM holdfast.ticket x
                WHERE x.line = l.id AND x.state = 0 AND x.client = t.client AND x.ttl = t.ttl;
            GET DIAGNOSTICS k = ROW_COUNT;
            DELETE FROM holdfast.crowd c WHERE c.line = l.id AND c.client = t.client AND c.ttl = t.ttl;
            l.nw := l.nw - k;
            p_headed := true;
            CONTINUE;
        END IF;
        IF l.sum + t.weight > l.cap THEN
            -- perhaps it has just become the first: a hold may end before its next look
            IF p_headed AND l.n > 0 AND l.soonest < v_till - t.ttl * 1000 * (RENEWALS - 1) / RENEWALS THEN
                PERFORM holdfast.tell(t.client, 'l' || encode(t.token, 'hex'));
            END IF;
            EXIT;
        END IF;
        l.fence := greatest(l.fence + 1, p_now);
        UPDATE holdfast.ticket x SET state = 1, fence = l.fence, expiry = v_till, granted = p_now
            WHERE x.line = l.id AND x.token = t.token;
        PERFORM holdfast.dequeue(l.id, t.client, t.ttl);
        l.soonest := CASE WHEN l.n = 0 THEN v_till ELSE least(l.soonest, v_till) END;
        l.n := l.n + 1;
        l.nw := l.nw - 1;
        l.sum := l.sum + t.weight;
        p_headed := true;
        IF position(t.token IN p_named) = 0 THEN
            PERFORM holdfast.tell(t.client, 'g' || encode(t.token, 'hex') || l.fence || ' ' || v_till);
        END IF;
    END LOOP;
    RETURN l;
END $$;

-- A hold has gone out of a line that is locked.
CREATE OR REPLACE FUNCTION holdfast.without(l holdfast.line, p_weight int8) RETURNS holdfast.line
LANGUAGE plpgsql AS $$
BEGIN
    l.n := l.n - 1;
    l.sum := l.sum - p_weight;
    RETURN l;
END $$;

-- In ms, rounded up: when the first in the queue should look again; -1: nobody holds.
CREATE OR REPLACE FUNCTION holdfast.recheck(l holdfast.line, p_now int8) RETURNS int8 LANGUAGE sql IMMUTABLE AS
$$ SELECT CASE WHEN l.n > 0 THEN greatest(l.soonest - p_now + 999, 0) / 1000 ELSE -1 END $$;

-- join: stand in line, or take the place if there is room (G1, G2, G3, G7). p_flags: 1 try, 2 barge.
-- Answers {0, fence, 0, 0, 0, line}: it holds; {1, crowd's till, recheck, number, position, line}: it waits;
-- {2} busy, and not in line; {3} revoked; {4, kind, capacity}: another kind of line.
-- Repeatable: a token that is in line answers its place, and its owner's time counts anew.
CREATE OR REPLACE FUNCTION holdfast.join(p_ns bytea, p_name bytea, p_token bytea, p_kind int8, p_cap int8,
    p_weight int8, p_ttl int8, p_flags int8, p_client bytea, p_process int8, p_owner int8, p_pid int8,
    p_host bytea, p_note bytea, p_hints bytea) RETURNS int8[] LANGUAGE plpgsql
SET enable_seqscan = off SET search_path = pg_catalog, pg_temp SET lock_timeout = 1000 AS $$
DECLARE
    v_sync text := holdfast.durable();
    l holdfast.line; was holdfast.line; t holdfast.ticket;
    v_now int8 := holdfast.clock(); v_end int8 := v_now + p_ttl * 1000; v_place int8; v_known bool;
BEGIN
    UPDATE holdfast.line x SET kind = p_kind, cap = p_cap, n = 1, sum = p_weight,
        fence = greatest(x.fence + 1, v_now), soonest = v_end, touched = v_now
        WHERE x.ns = p_ns AND x.name = p_name AND x.n = 0 AND x.nw = 0 AND x.followed <= v_now AND p_weight <= p_cap
        RETURNING x.id, x.fence INTO l.id, l.fence;
    IF FOUND THEN
        INSERT INTO holdfast.ticket VALUES (l.id, p_token, 1, 0, p_weight, 0, l.fence, v_end, v_now, v_now, p_ttl,
            p_client, p_process, p_owner, p_pid, p_host, p_note, p_hints);
        RETURN ARRAY[0, l.fence, 0, 0, 0, l.id];
    END IF;
    l := holdfast.line_of(p_ns, p_name, true);
    was := l;
    v_now := holdfast.clock();
    v_end := v_now + p_ttl * 1000;
    IF (l.n > 0 AND v_now >= l.soonest) OR (l.nw > 0 AND l.sum + p_weight <= l.cap) THEN
        l := holdfast.admit(l, v_now, false, p_token); -- those in front may have died
    END IF;
    SELECT * INTO t FROM holdfast.ticket x WHERE x.line = l.id AND x.token = p_token;
    v_known := FOUND;
    IF v_known AND t.state = 1 AND t.flags = 0 THEN
        -- this may come late, and its owner have renewed it for longer
        UPDATE holdfast.ticket x SET expiry = greatest(x.expiry, v_end), ttl = greatest(x.ttl, p_ttl)
            WHERE x.line = l.id AND x.token = p_token;
        PERFORM holdfast.save(l, v_now, true);
        RETURN ARRAY[0, t.fence, 0, 0, 0, l.id];
    ELSIF v_known AND t.state = 1 AND t.flags >= 2 THEN -- left already: a late one of these
        PERFORM holdfast.save(l, v_now, true);
        RETURN ARRAY[2::int8];
    ELSIF v_known AND t.state = 1 THEN -- revoked before its owner knew of it: its time may not count anew
        DELETE FROM holdfast.ticket x WHERE x.line = l.id AND x.token = p_token;
        l := holdfast.admit(holdfast.without(l, t.weight), v_now, true, ''::bytea);
        PERFORM holdfast.save(l, v_now, true);
        RETURN ARRAY[3::int8];
    END IF;
    IF NOT v_known THEN
        IF l.n = 0 AND l.nw = 0 THEN
            l.kind := p_kind;
            l.cap := p_cap;
        ELSIF l.kind <> p_kind OR l.cap <> p_cap THEN
            IF l IS DISTINCT FROM was THEN
                PERFORM holdfast.save(l, v_now, true);
            END IF;
            RETURN ARRAY[4, l.kind, l.cap];
        END IF;
        IF l.sum + p_weight <= l.cap AND (l.nw = 0 OR p_flags & 2 > 0) THEN
            l.fence := greatest(l.fence + 1, v_now);
            l.soonest := CASE WHEN l.n = 0 THEN v_end ELSE least(l.soonest, v_end) END;
            l.n := l.n + 1;
            l.sum := l.sum + p_weight;
            INSERT INTO holdfast.ticket VALUES (l.id, p_token, 1, 0, p_weight, 0, l.fence, v_end, v_now, v_now, p_ttl,
                p_client, p_process, p_owner, p_pid, p_host, p_note, p_hints);
            PERFORM holdfast.save(l, v_now, true);
            RETURN ARRAY[0, l.fence, 0, 0, 0, l.id];
        END IF;
        IF p_flags & 1 > 0 THEN
            IF l IS DISTINCT FROM was THEN
                PERFORM holdfast.save(l, v_now, true);
            END IF;
            RETURN ARRAY[2::int8];
        END IF;
        l.seq := l.seq + 1;
        l.nw := l.nw + 1;
        t.number := l.seq;
        v_place := l.nw;
        INSERT INTO holdfast.ticket VALUES (l.id, p_token, 0, 0, p_weight, l.seq, 0, 0, v_now, 0, p_ttl, p_client,
            p_process, p_owner, p_pid, p_host, p_note, p_hints);
    ELSE
        SELECT count(*) INTO v_place FROM holdfast.ticket x WHERE x.line = l.id AND x.state = 0 AND x.number <= t.number;
    END IF;
    INSERT INTO holdfast.crowd AS c VALUES (l.id, p_client, p_ttl, v_end, 1)
        ON CONFLICT (line, client, ttl) DO UPDATE SET till = v_end, count = c.count + CASE WHEN v_known THEN 0 ELSE 1 END;
    PERFORM holdfast.save(l, v_now, l IS DISTINCT FROM was);
    RETURN ARRAY[1, v_end, CASE WHEN v_place = 1 THEN holdfast.recheck(l, v_now) ELSE -1 END, t.number, v_place, l.id];
END $$;

-- wait: the waiting tickets of a client are alive, and what became of the oldest of them: the safety look (G1,
-- G4, G5). p_tokens: 16 bytes each. Answers {crowd's till (0: no such crowd), its count, recheck, then for each
-- token: 0 gone, 1 revoked, below 0: it waits, at minus its position, or its fence: it holds, and its time
-- counts anew, if it did not last for longer}.
CREATE OR REPLACE FUNCTION holdfast.wait(p_ns bytea, p_name bytea, p_client bytea, p_ttl int8, p_tokens bytea)
RETURNS int8[] LANGUAGE plpgsql
SET enable_seqscan = off SET search_path = pg_catalog, pg_temp SET lock_timeout = 1000 AS $$
DECLARE
    v_sync text := holdfast.durable();
    l holdfast.line; was holdfast.line; t holdfast.ticket;
    v_now int8; v_end int8; v_till int8 := 0; v_count int8 := 0; v_state int8; v_first int8;
    v_place int8 := 0; v_last int8 := 0; states int8[] := '{}'; v_token bytea;
BEGIN
    l := holdfast.line_of(p_ns, p_name, false);
    was := l;
    v_now := holdfast.clock();
    v_end := v_now + p_ttl * 1000;
    IF l.id IS NOT NULL THEN
        UPDATE holdfast.crowd c SET till = v_end WHERE c.line = l.id AND c.client = p_client AND c.ttl = p_ttl;
        l := holdfast.admit(l, v_now, false, p_tokens);
    END IF;
    FOR i IN 0 .. length(p_tokens) / 16 - 1 LOOP
        v_token := substr(p_tokens, i * 16 + 1, 16);
        v_state := 0;
        SELECT * INTO t FROM holdfast.ticket x WHERE x.line = l.id AND x.token = v_token;
        IF FOUND AND t.state = 1 AND t.flags = 0 AND t.expiry > v_now THEN
            -- this may come late, and its owner have renewed it for longer
            UPDATE holdfast.ticket x SET expiry = greatest(x.expiry, v_end), ttl = greatest(x.ttl, p_ttl)
                WHERE x.line = l.id AND x.token = v_token;
            v_state := t.fence;
        ELSIF FOUND AND t.state = 1 AND t.flags = 1 THEN -- before its owner knew of it
            v_state := 1;
        ELSIF FOUND AND t.state = 0 THEN
            -- they are named in the order of the queue: counted from the one before
            SELECT v_place + count(*) INTO v_place FROM holdfast.ticket x WHERE x.line = l.id AND x.state = 0
                AND x.number > v_last AND x.number <= t.number;
            v_last := t.number;
            v_state := -v_place;
            v_first := coalesce(v_first, v_state);
        ELSIF NOT FOUND AND EXISTS (SELECT 1 FROM holdfast.revoked r WHERE r.line = l.id AND r.token = v_token) THEN
            v_state := 1;
        END IF;
        states := states || v_state;
    END LOOP;
    IF l.id IS NOT NULL THEN
        SELECT c.till, c.count INTO v_till, v_count FROM holdfast.crowd c
            WHERE c.line = l.id AND c.client = p_client AND c.ttl = p_ttl;
        PERFORM holdfast.save(l, v_now, l IS DISTINCT FROM was);
    END IF;
    RETURN ARRAY[coalesce(v_till, 0), coalesce(v_count, 0),
        CASE WHEN v_first = -1 THEN holdfast.recheck(l, v_now) ELSE -1 END] || states;
END $$;

-- leave: give the place up and admit the next in the same step (G4, G7, G8). p_keep > 0: of a hold: the store
-- ends it after so many ms by itself. Answers 1, or 0: it was not there. Repeatable.
CREATE OR REPLACE FUNCTION holdfast.leave(p_ns bytea, p_name bytea, p_token bytea, p_keep int8) RETURNS int8[]
LANGUAGE plpgsql
SET enable_seqscan = off SET search_path = pg_catalog, pg_temp SET lock_timeout = 1000 AS $$
DECLARE
    v_sync text := holdfast.durable();
    l holdfast.line; t holdfast.ticket; v_now int8 := holdfast.clock(); v_first bool;
BEGIN
    IF p_keep = 0 THEN
        -- most lines have one holder, and nobody waits or follows: it is the one that leaves, nearly always
        UPDATE holdfast.line x SET n = 0, sum = 0, touched = v_now WHERE x.ns = p_ns AND x.name = p_name
            AND x.n = 1 AND x.nw = 0 AND x.followed <= v_now RETURNING x.id INTO l.id;
        IF FOUND THEN
            DELETE FROM holdfast.ticket x WHERE x.line = l.id AND x.token = p_token;
            IF FOUND THEN
                RETURN ARRAY[1::int8];
            END IF;
            UPDATE holdfast.line x SET (n, sum) = (SELECT count(*), coalesce(sum(y.weight), 0)
                FROM holdfast.ticket y WHERE y.line = l.id AND y.state = 1) WHERE x.id = l.id;
            RETURN ARRAY[0::int8];
        END IF;
    END IF;
    l := holdfast.line_of(p_ns, p_name, false);
    v_now := holdfast.clock();
    IF p_keep > 0 THEN
        SELECT * INTO t FROM holdfast.ticket x WHERE x.line = l.id AND x.token = p_token;
        IF FOUND AND t.state = 1 THEN
            IF t.flags < 2 THEN
                PERFORM holdfast.last_for(l, v_now, p_token, t.flags + 2, p_keep);
            END IF;
            RETURN ARRAY[1::int8];
        END IF;
    END IF;
    DELETE FROM holdfast.ticket x WHERE x.line = l.id AND x.token = p_token RETURNING * INTO t;
    IF NOT FOUND THEN
        RETURN ARRAY[0::int8];
    END IF;
    IF t.state = 1 THEN
        l := holdfast.without(l, t.weight);
        v_first := true;
    ELSE
        l.nw := l.nw - 1;
        PERFORM holdfast.dequeue(l.id, t.client, t.ttl);
        v_first := NOT EXISTS (SELECT 1 FROM holdfast.ticket x
            WHERE x.line = l.id AND x.state = 0 AND x.number < t.number);
    END IF;
    IF v_first OR v_now >= l.soonest THEN
        l := holdfast.admit(l, v_now, t.state = 0, ''::bytea);
    END IF;
    PERFORM holdfast.save(l, v_now, true);
    RETURN ARRAY[1::int8];
END $$;

-- Of a line that is locked: the hold ends by itself p_keep ms from now, and by nothing its owner does.
CREATE OR REPLACE FUNCTION holdfast.last_for(l holdfast.line, p_now int8, p_token bytea, p_flags int8, p_keep int8)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE holdfast.ticket x SET flags = p_flags, expiry = p_now + p_keep * 1000
        WHERE x.line = l.id AND x.token = p_token;
    l.soonest := least(l.soonest, p_now + p_keep * 1000);
    PERFORM holdfast.tell(t.client, 'l' || encode(t.token, 'hex')) FROM
        (SELECT x.client, x.token FROM holdfast.ticket x WHERE x.line = l.id AND x.state = 0
         ORDER BY x.number LIMIT 1) t; -- the head must learn when to look
    PERFORM holdfast.save(l, p_now, true);
END $$;

-- keep: a place that its owner has left (leave with p_keep) lasts for so long from now instead; p_orphan 1: one
-- that is held, too, which becomes a kept one. Answers 1, or 0: no such ticket, or none of these. One whose time is
-- over is not revived.
CREATE OR REPLACE FUNCTION holdfast.keep(p_ns bytea, p_name bytea, p_token bytea, p_keep int8, p_orphan int8)
RETURNS int8[] LANGUAGE plpgsql
SET enable_seqscan = off SET search_path = pg_catalog, pg_temp SET lock_timeout = 1000 AS $$
DECLARE
    v_sync text := holdfast.durable();
    l holdfast.line; v_now int8;
BEGIN
    l := holdfast.line_of(p_ns, p_name, false);
    v_now := holdfast.clock();
    IF NOT EXISTS (SELECT 1 FROM holdfast.ticket x WHERE x.line = l.id AND x.token = p_token AND x.state = 1
            AND (x.flags = 2 OR p_orphan > 0 AND x.flags = 0) AND x.expiry > v_now) THEN
        RETURN ARRAY[0::int8];
    END IF;
    PERFORM holdfast.last_for(l, v_now, p_token, 2, p_keep);
    RETURN ARRAY[1::int8];
END $$;

-- renew: many holds of one client are alive (G1, G8). Answers for each: 1 renewed, 0 gone or over: never
-- revived, because another may have been told that the place is free; 2 marked: it ends at its expiry;
-- 3 it holds (ttl 0: only asked). Takes no line, unless a hold shall end sooner than before (a shorter ttl, a
-- clock that was set back): then the line must know of it first.
-- p_sent: when it was sent, by the clock of the client. One that was sent before the last one that was executed
-- comes late, from a connection that was lost: its owner may rely on a longer ttl by now. It shortens nothing.
CREATE OR REPLACE FUNCTION holdfast.renew(p_sent int8, p_lines int8[], p_tokens bytea, p_ttls int8[]) RETURNS int8[]
LANGUAGE plpgsql
SET enable_seqscan = off SET search_path = pg_catalog, pg_temp SET lock_timeout = 1000 AS $$
DECLARE
    v_sync text := holdfast.durable();
    t holdfast.ticket; answers int8[] := '{}'; v_answer int8; v_token bytea; v_now int8; v_end int8;
BEGIN
    FOR i IN 1 .. cardinality(p_lines) LOOP
        v_token := substr(p_tokens, i * 16 - 15, 16);
        v_answer := 0;
        SELECT * INTO t FROM holdfast.ticket x WHERE x.line = p_lines[i] AND x.token = v_token AND x.state = 1;
        v_now := holdfast.clock();
        v_end := v_now + p_ttls[i] * 1000;
        IF NOT FOUND OR t.expiry <= v_now OR t.flags > 1 THEN
            v_answer := 0;
        ELSIF t.flags = 1 THEN
            v_answer := 2;
        ELSIF p_ttls[i] = 0 THEN
            v_answer := 3;
        ELSE
            IF v_end < t.expiry AND p_sent >= t.sent THEN
                UPDATE holdfast.line x SET soonest = least(x.soonest, v_end) WHERE x.id = p_lines[i];
            END IF;
            UPDATE holdfast.ticket x SET ttl = CASE WHEN x.sent > p_sent THEN x.ttl ELSE p_ttls[i] END,
                expiry = CASE WHEN x.sent > p_sent THEN greatest(x.expiry, v_end) ELSE v_end END,
                sent = greatest(x.sent, p_sent)
                WHERE x.line = p_lines[i] AND x.token = v_token AND x.state = 1 AND x.flags = 0
                AND x.expiry > holdfast.clock();
            v_answer := CASE WHEN FOUND THEN 1 ELSE 0 END;
        END IF;
        answers := answers || v_answer;
    END LOOP;
    RETURN answers;
END $$;

-- amend: of a hold: a smaller weight, another record; admits the next in the same step. Answers 1, 0: it does
-- not hold. Repeatable.
CREATE OR REPLACE FUNCTION holdfast.amend(p_ns bytea, p_name bytea, p_token bytea, p_weight int8, p_process int8,
    p_owner int8, p_note bytea, p_hints bytea) RETURNS int8[] LANGUAGE plpgsql
SET enable_seqscan = off SET search_path = pg_catalog, pg_temp SET lock_timeout = 1000 AS $$
DECLARE
    v_sync text := holdfast.durable();
    l holdfast.line; t holdfast.ticket; v_now int8;
BEGIN
    l := holdfast.line_of(p_ns, p_name, false);
    v_now := holdfast.clock();
    SELECT * INTO t FROM holdfast.ticket x WHERE x.line = l.id AND x.token = p_token AND x.state = 1
        AND x.expiry > v_now;
    IF NOT FOUND THEN
        RETURN ARRAY[0::int8];
    END IF;
    UPDATE holdfast.ticket x SET weight = least(x.weight, p_weight), process = p_process, owner = p_owner,
        note = p_note, hints = p_hints WHERE x.line = l.id AND x.token = p_token;
    l.sum := l.sum - t.weight + least(t.weight, p_weight);
    l := holdfast.admit(l, v_now, false, ''::bytea);
    PERFORM holdfast.save(l, v_now, true);
    RETURN ARRAY[1::int8];
END $$;

-- evict: end one ticket, named by its token (G8): with p_at_once, or (a hold) by ending its renewal. A kept one
-- has no owner who could be told, and ends at once. Answers 1, 0: no such ticket.
CREATE OR REPLACE FUNCTION holdfast.evict(p_ns bytea, p_name bytea, p_token bytea, p_at_once int8) RETURNS int8[]
LANGUAGE plpgsql
SET enable_seqscan = off SET search_path = pg_catalog, pg_temp SET lock_timeout = 1000 AS $$
DECLARE
    v_sync text := holdfast.durable();
    l holdfast.line; t holdfast.ticket; v_now int8;
BEGIN
    l := holdfast.line_of(p_ns, p_name, false);
    v_now := holdfast.clock();
    SELECT * INTO t FROM holdfast.ticket x WHERE x.line = l.id AND x.token = p_token;
    IF NOT FOUND THEN
        RETURN ARRAY[0::int8];
    END IF;
    IF t.state = 1 AND p_at_once = 0 AND t.flags < 2 THEN
        UPDATE holdfast.ticket x SET flags = 1 WHERE x.line = l.id AND x.token = p_token;
        PERFORM holdfast.tell(t.client, 'm' || encode(p_token, 'hex'));
    ELSE
        IF t.state = 0 THEN
            SELECT c.till INTO t.expiry FROM holdfast.crowd c
                WHERE c.line = l.id AND c.client = t.client AND c.ttl = t.ttl;
            l.nw := l.nw - 1;
            PERFORM holdfast.dequeue(l.id, t.client, t.ttl);
        ELSE
            l := holdfast.without(l, t.weight);
        END IF;
        DELETE FROM holdfast.ticket x WHERE x.line = l.id AND x.token = p_token;
        IF t.flags < 2 THEN -- a kept one is nobody's
            DELETE FROM holdfast.revoked r WHERE r.line = l.id AND r.till <= v_now;
            INSERT INTO holdfast.revoked VALUES (l.id, p_token, coalesce(t.expiry, v_now)) ON CONFLICT DO NOTHING;
            PERFORM holdfast.tell(t.client, 'x' || encode(p_token, 'hex'));
        END IF;
        l := holdfast.admit(l, v_now, true, ''::bytea);
    END IF;
    PERFORM holdfast.save(l, v_now, true);
    RETURN ARRAY[1::int8];
END $$;

-- This client wants to be told of changes for p_ms.
CREATE OR REPLACE FUNCTION holdfast.begin_follow(p_ns bytea, p_name bytea, p_client bytea, p_ms int8) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE l holdfast.line := holdfast.line_of(p_ns, p_name, true); v_till int8 := holdfast.clock() + p_ms * 1000;
BEGIN
    DELETE FROM holdfast.follow f WHERE f.line = l.id AND f.till <= v_till - p_ms * 1000; -- who went without a word
    INSERT INTO holdfast.follow VALUES (l.id, p_client, v_till)
        ON CONFLICT (line, client) DO UPDATE SET till = v_till;
    UPDATE holdfast.line x SET followed = greatest(x.followed, v_till) WHERE x.id = l.id;
END $$;

-- look: a line as it is, one row for each ticket whose time is not over, those that hold first; if there is no
-- such ticket one row with token NULL, or none. Changes nothing, but for p_follow > 0. p_front: of the queue
-- only that ticket and those in front of it. p_notes 0: without notes.
CREATE OR REPLACE FUNCTION holdfast.look(p_ns bytea, p_name bytea, p_client bytea, p_follow int8, p_front bytea,
    p_notes int8) RETURNS TABLE (r_now int8, r_kind int8, r_cap int8, r_token bytea, r_state int8,
    r_flags int8, r_weight int8, r_fence int8, r_expiry int8, r_joined int8, r_granted int8, r_process int8,
    r_owner int8, r_pid int8, r_host bytea, r_note bytea, r_hints bytea) LANGUAGE plpgsql
SET enable_seqscan = off SET search_path = pg_catalog, pg_temp SET lock_timeout = 1000 AS $$
DECLARE v_now int8; v_last int8;
BEGIN
    IF p_follow > 0 THEN
        PERFORM holdfast.begin_follow(p_ns, p_name, p_client, p_follow);
    END IF;
    v_now := holdfast.clock();
    SELECT t.number INTO v_last FROM holdfast.line l JOIN holdfast.ticket t ON t.line = l.id
        WHERE l.ns = p_ns AND l.name = p_name AND t.token = p_front AND t.state = 0;
    -- the time of a row is read after its snapshot was taken: no expiry lies further ahead than its ttl
    RETURN QUERY SELECT holdfast.clock(), l.kind, l.cap, t.token, t.state, t.flags, t.weight, t.fence, t.till,
        t.joined, t.granted, t.process, t.owner, t.pid, t.host,
        CASE WHEN p_notes > 0 THEN t.note ELSE ''::bytea END, t.hints
        FROM holdfast.line l LEFT JOIN
            (SELECT x.*, CASE WHEN x.state = 1 THEN x.expiry ELSE c.till END AS till FROM holdfast.ticket x
             LEFT JOIN holdfast.crowd c ON c.line = x.line AND c.client = x.client AND c.ttl = x.ttl) t
            ON t.line = l.id AND t.till > v_now AND (t.state = 1 OR v_last IS NULL OR t.number <= v_last)
        WHERE l.ns = p_ns AND l.name = p_name
        ORDER BY t.state DESC, CASE WHEN t.state = 1 THEN t.fence ELSE t.number END;
END $$;

-- list: lines in which somebody is, by name: name, kind, capacity, how many hold, how many wait, ms since the
-- oldest grant or -1, sum of the weights that hold. Names behind p_after, from p_from on, below p_below ('': no end).
CREATE OR REPLACE FUNCTION holdfast.list(p_ns bytea, p_after bytea, p_from bytea, p_below bytea, p_limit int8)
RETURNS TABLE (r_name bytea, r_kind int8, r_cap int8, r_holders int8, r_waiters int8, r_oldest int8, r_sum int8)
LANGUAGE plpgsql
SET enable_seqscan = off SET search_path = pg_catalog, pg_temp SET lock_timeout = 1000 AS $$
DECLARE v_now int8 := holdfast.clock();
BEGIN
    RETURN QUERY SELECT l.name, l.kind, l.cap, h.n, w.n, coalesce(greatest((v_now - h.oldest) / 1000, 0), -1), h.sum
        FROM holdfast.line l,
        LATERAL (SELECT count(*) n, min(t.granted) oldest, coalesce(sum(t.weight), 0)::int8 sum
            FROM holdfast.ticket t WHERE t.line = l.id AND t.state = 1 AND t.expiry > v_now) h,
        LATERAL (SELECT count(*) n FROM holdfast.ticket t JOIN holdfast.crowd c ON c.line = t.line
            AND c.client = t.client AND c.ttl = t.ttl WHERE t.line = l.id AND t.state = 0 AND c.till > v_now) w
        WHERE l.ns = p_ns AND l.name > p_after AND l.name >= p_from AND (p_below = ''::bytea OR l.name < p_below)
            AND l.n + l.nw > 0 AND h.n + w.n > 0
        ORDER BY l.name LIMIT p_limit;
END $$;

-- cell: one small record beside a line. p_verb 0 get 1 put 2 add 3 del; p_any 0: only if its version is
-- p_version (0: there is none). Versions come from the line's fence, so they grow over deletion and expiry.
-- Answers rc (0, -1 another version, -2 no number or too great), version (0: none), data, ms until it expires
-- or -1.
CREATE OR REPLACE FUNCTION holdfast.cell(p_ns bytea, p_name bytea, p_client bytea, p_follow int8, p_verb int8,
    p_any int8, p_version int8, p_add int8, p_ttl int8, p_data bytea)
RETURNS TABLE (r_rc int8, r_version int8, r_data bytea, r_expires int8) LANGUAGE plpgsql
SET enable_seqscan = off SET search_path = pg_catalog, pg_temp SET lock_timeout = 1000 AS $$
DECLARE
    v_sync text := holdfast.durable();
    l holdfast.line; v_now int8; v_sum numeric;
BEGIN
    IF p_follow > 0 THEN
        PERFORM holdfast.begin_follow(p_ns, p_name, p_client, p_follow);
    END IF;
    IF p_verb = 0 THEN
        SELECT * INTO l FROM holdfast.line x WHERE x.ns = p_ns AND x.name = p_name;
    ELSE
        l := holdfast.line_of(p_ns, p_name, p_verb < 3);
    END IF;
    v_now := holdfast.clock();
    r_rc := 0;
    IF l.cell IS NULL OR l.cell_till <= v_now THEN
        l.cell := NULL;
        l.cell_till := NULL;
        l.version := 0;
    END IF;
    IF (p_verb = 1 OR p_verb = 3) AND p_any = 0 AND coalesce(l.version, 0) <> p_version THEN
        r_rc := -1;
    ELSIF p_verb = 2 THEN
        IF encode(coalesce(l.cell, '0'), 'escape') ~ '^(0|-?[1-9][0-9]{0,18})$' THEN
            v_sum := encode(coalesce(l.cell, '0'), 'escape')::numeric + p_add;
        END IF;
        IF v_sum BETWEEN -9223372036854775808 AND 9223372036854775807 THEN
            p_data := convert_to(v_sum::text, 'UTF8');
        ELSE
            r_rc := -2;
        END IF;
    END IF;
    IF r_rc = 0 AND p_verb > 0 AND (p_verb < 3 OR l.version > 0) THEN
        l.cell := CASE WHEN p_verb = 3 THEN NULL ELSE p_data END;
        l.cell_till := CASE WHEN p_verb < 3 AND p_ttl > 0 THEN v_now + p_ttl * 1000 END;
        l.fence := greatest(l.fence + 1, v_now);
        l.version := CASE WHEN p_verb = 3 THEN 0 ELSE l.fence END;
        UPDATE holdfast.line x SET cell = l.cell, cell_till = l.cell_till, version = l.version WHERE x.id = l.id;
        PERFORM holdfast.save(l, v_now, true);
    END IF;
    r_version := coalesce(l.version, 0);
    r_data := coalesce(l.cell, ''::bytea);
    r_expires := coalesce((l.cell_till - v_now + 999) / 1000, -1);
    RETURN NEXT;
END $$;

-- ---- mode=optimistic ----
--
-- One row per name has all there is: version, owner and lease. Whoever finds it free takes it by compare-and-set on
-- the version; nobody stands in a line, and whoever waits tries again. The version is the fence: a grant changes it,
-- and nothing else does; so two who have read the same version cannot both take the row, whichever way they wait for
-- each other. Renewing and releasing name the token (G8). A new row begins with the mark of its bucket, as a line does.
CREATE TABLE IF NOT EXISTS holdfast.lease (
    id int8 GENERATED ALWAYS AS IDENTITY (START WITH -1 INCREMENT BY -1) PRIMARY KEY, -- no id of a line: see follow
    ns bytea NOT NULL, name bytea NOT NULL, version int8 NOT NULL, token bytea NOT NULL DEFAULT '',
    expiry int8 NOT NULL DEFAULT 0, granted int8 NOT NULL DEFAULT 0, sent int8 NOT NULL DEFAULT 0,
    wanted int8 NOT NULL DEFAULT 0, touched int8 NOT NULL, client bytea NOT NULL DEFAULT '',
    process int8 NOT NULL DEFAULT 0, owner int8 NOT NULL DEFAULT 0, pid int8 NOT NULL DEFAULT 0,
    host bytea NOT NULL DEFAULT '', note bytea NOT NULL DEFAULT '',
    UNIQUE (ns, name)) WITH (fillfactor = 50);

-- take: for the ticket p_token, which wants it or has it. Answers the row as it is then; its time counts anew if it
-- is the ticket's, unless that lasts for longer. p_wait: if it is another's, whoever frees it tells this client. That is
-- written before the row is locked, and the row is read again then: who frees it later sees what was written, because
-- it waits for us; and what was freed before is taken (G4).
CREATE OR REPLACE FUNCTION holdfast.take(p_ns bytea, p_name bytea, p_token bytea, p_ttl int8, p_wait bool,
    p_client bytea, p_process int8, p_owner int8, p_pid int8, p_host bytea, p_note bytea) RETURNS holdfast.lease
LANGUAGE plpgsql AS $$
DECLARE r holdfast.lease; v_now int8; v_mark int8;
BEGIN
    LOOP
        SELECT * INTO r FROM holdfast.lease x WHERE x.ns = p_ns AND x.name = p_name;
        v_now := holdfast.clock();
        IF r.id IS NULL THEN
            -- locked: whoever removed the row before has committed by then
            SELECT m.fence INTO v_mark FROM holdfast.mark m WHERE m.bucket = holdfast.bucket(p_ns, p_name) FOR SHARE;
            INSERT INTO holdfast.lease (ns, name, version, touched) VALUES (p_ns, p_name, v_mark, v_now)
                ON CONFLICT DO NOTHING;
            CONTINUE;
        ELSIF r.token = p_token AND r.expiry > v_now THEN
            UPDATE holdfast.lease x SET expiry = greatest(x.expiry, v_now + p_ttl * 1000)
                WHERE x.id = r.id AND x.version = r.version AND x.token = p_token RETURNING * INTO r;
        ELSIF r.token = ''::bytea OR r.expiry <= v_now THEN
            UPDATE holdfast.lease x SET version = greatest(x.version + 1, v_now), token = p_token,
                expiry = v_now + p_ttl * 1000, granted = v_now, sent = 0, touched = v_now, client = p_client,
                process = p_process, owner = p_owner, pid = p_pid, host = p_host, note = p_note
                WHERE x.id = r.id AND x.version = r.version AND (x.token = ''::bytea OR x.expiry <= v_now)
                RETURNING * INTO r;
        ELSIF NOT p_wait THEN
            RETURN r;
        ELSE
            INSERT INTO holdfast.follow AS f VALUES (r.id, p_client, v_now + p_ttl * 1000)
                ON CONFLICT (line, client) DO UPDATE SET till = excluded.till WHERE f.till < v_now + p_ttl * 500;
            IF NOT FOUND THEN
                RETURN r;
            END IF;
            UPDATE holdfast.lease x SET wanted = greatest(x.wanted, v_now + p_ttl * 1000) WHERE x.id = r.id
                RETURNING * INTO r;
            CONTINUE WHEN r.token = ''::bytea OR r.expiry <= holdfast.clock();
        END IF;
        IF r.id IS NOT NULL THEN
            RETURN r;
        END IF;
    END LOOP; -- another was faster: what it left is looked at
END $$;

CREATE OR REPLACE FUNCTION holdfast.recheck(r holdfast.lease) RETURNS int8 LANGUAGE sql VOLATILE AS
$$ SELECT greatest(r.expiry - holdfast.clock() + 999, 0) / 1000 $$;

-- claim: as join.
CREATE OR REPLACE FUNCTION holdfast.claim(p_ns bytea, p_name bytea, p_token bytea, p_kind int8, p_cap int8,
    p_weight int8, p_ttl int8, p_flags int8, p_client bytea, p_process int8, p_owner int8, p_pid int8,
    p_host bytea, p_note bytea, p_hints bytea) RETURNS int8[] LANGUAGE plpgsql
SET enable_seqscan = off SET search_path = pg_catalog, pg_temp SET lock_timeout = 1000 AS $$
DECLARE
    v_sync text := holdfast.durable();
    r holdfast.lease := holdfast.take(p_ns, p_name, p_token, p_ttl, p_flags & 1 = 0, p_client, p_process, p_owner, p_pid,
        p_host, p_note);
BEGIN
    IF r.token = p_token THEN
        RETURN ARRAY[0, r.version, 0, 0, 0, r.id];
    ELSIF p_flags & 1 > 0 THEN
        RETURN ARRAY[2::int8];
    END IF;
    RETURN ARRAY[1, holdfast.clock(), holdfast.recheck(r), holdfast.clock(), 0, r.id];
END $$;

-- seek: as wait, of tickets that nobody but their client knows of. p_token: the one that would take it, or ''.
-- At minus 2^32: at no position.
CREATE OR REPLACE FUNCTION holdfast.seek(p_ns bytea, p_name bytea, p_client bytea, p_ttl int8, p_tokens bytea,
    p_token bytea, p_process int8, p_owner int8, p_pid int8, p_host bytea, p_note bytea) RETURNS int8[]
LANGUAGE plpgsql
SET enable_seqscan = off SET search_path = pg_catalog, pg_temp SET lock_timeout = 1000 AS $$
DECLARE
    v_sync text := holdfast.durable();
    r holdfast.lease; v_recheck int8 := -1; states int8[] := '{}';
BEGIN
    IF p_token <> ''::bytea THEN
        r := holdfast.take(p_ns, p_name, p_token, p_ttl, true, p_client, p_process, p_owner, p_pid, p_host, p_note);
        v_recheck := holdfast.recheck(r);
    END IF;
    FOR i IN 0 .. length(p_tokens) / 16 - 1 LOOP
        states := states || CASE WHEN r.token = substr(p_tokens, i * 16 + 1, 16) THEN r.version ELSE -4294967296 END;
    END LOOP;
    RETURN ARRAY[holdfast.clock(), 2147483648, v_recheck] || states; -- nobody could take one out of a queue
END $$;

-- Of a row that is free now: all who wait are told, and try.
CREATE OR REPLACE FUNCTION holdfast.freed(r holdfast.lease) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_now int8 := holdfast.clock();
BEGIN
    IF r.wanted > v_now THEN
        PERFORM holdfast.tell(f.client, 'f' || encode(r.name, 'hex')) FROM holdfast.follow f
            WHERE f.line = r.id AND f.till > v_now;
    END IF;
END $$;

-- drop: as leave, and as evict, which tells the owner.
CREATE OR REPLACE FUNCTION holdfast.drop(p_ns bytea, p_name bytea, p_token bytea, p_evict int8) RETURNS int8[]
LANGUAGE plpgsql
SET enable_seqscan = off SET search_path = pg_catalog, pg_temp SET lock_timeout = 1000 AS $$
DECLARE
    v_sync text := holdfast.durable();
    r holdfast.lease;
BEGIN
    UPDATE holdfast.lease x SET token = '', touched = holdfast.clock()
        WHERE x.ns = p_ns AND x.name = p_name AND x.token = p_token RETURNING * INTO r;
    IF NOT FOUND THEN
        RETURN ARRAY[0::int8];
    END IF;
    IF p_evict > 0 THEN
        PERFORM holdfast.tell(r.client, 'x' || encode(p_token, 'hex'));
    END IF;
    PERFORM holdfast.freed(r);
    RETURN ARRAY[1::int8];
END $$;

-- prolong: as renew.
CREATE OR REPLACE FUNCTION holdfast.prolong(p_sent int8, p_ids int8[], p_tokens bytea, p_ttls int8[]) RETURNS int8[]
LANGUAGE plpgsql
SET enable_seqscan = off SET search_path = pg_catalog, pg_temp SET lock_timeout = 1000 AS $$
DECLARE
    v_sync text := holdfast.durable();
    answers int8[] := '{}'; v_end int8;
BEGIN
    FOR i IN 1 .. cardinality(p_ids) LOOP
        v_end := holdfast.clock() + p_ttls[i] * 1000;
        UPDATE holdfast.lease x SET sent = greatest(x.sent, p_sent),
            expiry = CASE WHEN p_ttls[i] = 0 OR x.sent > p_sent THEN greatest(x.expiry, v_end) ELSE v_end END
            WHERE x.id = p_ids[i] AND x.token = substr(p_tokens, i * 16 - 15, 16) AND x.expiry > holdfast.clock();
        answers := answers || CASE WHEN NOT FOUND THEN 0 WHEN p_ttls[i] = 0 THEN 3 ELSE 1 END::int8;
    END LOOP;
    RETURN answers;
END $$;

-- peek: as look: who has it.
CREATE OR REPLACE FUNCTION holdfast.peek(p_ns bytea, p_name bytea) RETURNS TABLE (r_now int8, r_kind int8, r_cap int8,
    r_token bytea, r_state int8, r_flags int8, r_weight int8, r_fence int8, r_expiry int8, r_joined int8,
    r_granted int8, r_process int8, r_owner int8, r_pid int8, r_host bytea, r_note bytea, r_hints bytea)
LANGUAGE sql
SET enable_seqscan = off SET search_path = pg_catalog, pg_temp SET lock_timeout = 1000 AS
$$ SELECT holdfast.clock(), 0::int8, 2147483648, x.token, 1::int8, 0::int8, 2147483648, x.version, x.expiry, x.granted,
    x.granted, x.process, x.owner, x.pid, x.host, x.note, ''::bytea FROM holdfast.lease x
    WHERE x.ns = p_ns AND x.name = p_name AND x.token <> ''::bytea AND x.expiry > holdfast.clock() $$;

-- ---- mode=pessimistic, mode=advisory ----
--
-- The lock is the server's, on a row of this table or on a key, and belongs to a session. A row is locked by SELECT FOR
-- UPDATE in a transaction that is open for as long as the lock is held; its version is the last fence that was given
-- back. The fence of a holder that dies is not written: the next one is greater by the clock.
CREATE TABLE IF NOT EXISTS holdfast.mutex (
    ns bytea, name bytea, version int8 NOT NULL, PRIMARY KEY (ns, name)) WITH (fillfactor = 50);

-- attach: this session is for one ticket at a time; which one is it? From then on what is named without a schema is the
-- server's own. Limits of the server that are not ours end no wait and no hold; whoever is not there any more does not go
-- on waiting; a session that nobody uses goes by itself. A plan that was made while the table was nearly empty must not
-- read all of it later.
CREATE OR REPLACE FUNCTION holdfast.attach() RETURNS TABLE (r_pid int8, r_started int8) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);
    PERFORM set_config('statement_timeout', '0', false), set_config('lock_timeout', '0', false),
        set_config('idle_session_timeout', '60000', false), set_config('enable_seqscan', 'off', false);
    BEGIN
        PERFORM set_config('client_connection_check_interval', '1000', false);
    EXCEPTION WHEN invalid_parameter_value THEN -- not every system can
        NULL;
    END;
    PERFORM set_config(s.name, CASE s.name WHEN 'transaction_timeout' THEN '0' ELSE 'on' END, false) FROM pg_settings s
        WHERE s.name = 'transaction_timeout' OR s.name = 'synchronous_commit' AND s.setting = 'off';
    -- a standby has advisory locks, too, of its own: nobody on the primary would see them
    RETURN QUERY SELECT a.pid::int8, (extract(epoch FROM a.backend_start) * 1000000)::int8 FROM pg_stat_activity a
        WHERE a.pid = pg_backend_pid() AND NOT pg_is_in_recovery();
END $$;

CREATE OR REPLACE FUNCTION holdfast.row_of(p_ns bytea, p_name bytea) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE v_mark int8;
BEGIN
    SELECT m.fence INTO v_mark FROM holdfast.mark m WHERE m.bucket = holdfast.bucket(p_ns, p_name) FOR SHARE;
    -- the clock: a row that is new has not been idle
    INSERT INTO holdfast.mutex VALUES (p_ns, p_name, greatest(v_mark, holdfast.clock())) ON CONFLICT DO NOTHING;
END $$;

-- As look: the session with this number has a lock. Ours are labelled with the token and the beginning of the note; the
-- ticket of another program is made of its session's number and start.
CREATE OR REPLACE FUNCTION holdfast.holder(p_pid int8, p_weight int8) RETURNS TABLE (r_now int8, r_kind int8, r_cap int8,
    r_token bytea, r_state int8, r_flags int8, r_weight int8, r_fence int8, r_expiry int8, r_joined int8,
    r_granted int8, r_process int8, r_owner int8, r_pid int8, r_host bytea, r_note bytea, r_hints bytea)
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT holdfast.clock(), 0::int8, 2147483648, CASE WHEN s.ours THEN decode(substr(s.label, 4, 32), 'hex')
            ELSE decode(lpad(to_hex(s.pid), 16, '0') || lpad(to_hex(s.start), 16, '0'), 'hex') END,
        1::int8, 0::int8, p_weight, 0::int8, 0::int8, s.since, s.since, 0::int8, 0::int8, s.pid::int8, s.host,
        CASE WHEN s.ours THEN convert_to(substr(s.label, 37), 'UTF8') ELSE 'a lock of another program'::bytea END,
        ''::bytea
    FROM (SELECT a.pid, (extract(epoch FROM a.backend_start) * 1000000)::int8 AS start, a.application_name AS label,
            coalesce(a.application_name ~ '^hf [0-9a-f]{32} ', false) AS ours,
            (extract(epoch FROM coalesce(a.xact_start, a.state_change)) * 1000000)::int8 AS since,
            convert_to(coalesce(host(a.client_addr), '-'), 'UTF8') AS host
        FROM pg_stat_activity a WHERE a.pid = p_pid) s $$;

-- Sessions that have the lock of a name, with its weight.
CREATE OR REPLACE FUNCTION holdfast.row_pids(p_ns bytea, p_name bytea) RETURNS TABLE (pid int8, weight int8)
LANGUAGE sql
SET enable_seqscan = off SET search_path = pg_catalog, pg_temp SET lock_timeout = 1000 AS $$
    SELECT l.pid::int8, 2147483648 FROM holdfast.mutex x JOIN pg_locks l ON l.locktype = 'transactionid'
        AND l.transactionid = x.xmax AND l.granted AND l.mode = 'ExclusiveLock'
    WHERE x.ns = p_ns AND x.name = p_name $$;

CREATE OR REPLACE FUNCTION holdfast.key_pids(p_ns text, p_name text) RETURNS TABLE (pid int8, weight int8)
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT l.pid::int8, CASE WHEN l.mode = 'ExclusiveLock' THEN 2147483648 ELSE 1 END FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
        AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
        AND (l.classid::int8 << 32) | l.objid::int8 = hashtextextended(p_name, CASE p_ns WHEN '' THEN 0
            ELSE hashtextextended(p_ns, 0) END) $$;

-- sweep: removes lines that nobody has used for ten minutes, some hundred at a time. Answers how many. Whoever
-- is in such a line is dead, or renews without touching it: then it is looked at again in ten minutes.
CREATE OR REPLACE FUNCTION holdfast.sweep(p_idle int8) RETURNS int8[] LANGUAGE plpgsql
SET enable_seqscan = off SET search_path = pg_catalog, pg_temp SET lock_timeout = 1000 SET jit = off AS $$
DECLARE
    v_sync text := holdfast.durable();
    l holdfast.line; e holdfast.lease; w holdfast.mutex; v_now int8 := holdfast.clock(); v_count int8 := 0;
BEGIN
    IF NOT pg_try_advisory_xact_lock(7525353031127561077) THEN
        RETURN ARRAY[0::int8];
    END IF;
    FOR l IN SELECT * FROM holdfast.line x WHERE x.touched < v_now - p_idle * 1000 AND x.followed <= v_now
            AND (x.cell IS NULL OR x.cell_till <= v_now) LIMIT 500 FOR UPDATE SKIP LOCKED LOOP
        -- the condition is tested again if a renewal has the row: see above
        DELETE FROM holdfast.ticket t WHERE t.line = l.id AND t.state = 1 AND t.expiry <= v_now;
        IF EXISTS (SELECT 1 FROM holdfast.ticket t WHERE t.line = l.id AND t.state = 1)
                OR EXISTS (SELECT 1 FROM holdfast.crowd c WHERE c.line = l.id AND c.till > v_now) THEN
            PERFORM holdfast.save(holdfast.admit(l, v_now, true, ''::bytea), v_now, true);
            CONTINUE;
        END IF;
        DELETE FROM holdfast.ticket t WHERE t.line = l.id;
        UPDATE holdfast.mark m SET fence = greatest(m.fence, l.fence) WHERE m.bucket = holdfast.bucket(l.ns, l.name);
        DELETE FROM holdfast.crowd c WHERE c.line = l.id;
        DELETE FROM holdfast.revoked r WHERE r.line = l.id;
        DELETE FROM holdfast.follow f WHERE f.line = l.id;
        DELETE FROM holdfast.line x WHERE x.id = l.id;
        v_count := v_count + 1;
    END LOOP;
    DELETE FROM holdfast.follow f WHERE f.line < 0 AND f.till < v_now - p_idle * 1000; -- of leases: who has gone
    FOR e IN SELECT * FROM holdfast.lease x WHERE x.touched < v_now - p_idle * 1000
            AND x.expiry < v_now - p_idle * 1000 LIMIT 500 FOR UPDATE SKIP LOCKED LOOP
        UPDATE holdfast.mark m SET fence = greatest(m.fence, e.version) WHERE m.bucket = holdfast.bucket(e.ns, e.name);
        DELETE FROM holdfast.follow f WHERE f.line = e.id;
        DELETE FROM holdfast.lease x WHERE x.id = e.id;
        v_count := v_count + 1;
    END LOOP;
    FOR w IN SELECT * FROM holdfast.mutex x WHERE x.version < v_now - p_idle * 1000 LIMIT 500 FOR UPDATE SKIP LOCKED LOOP
        UPDATE holdfast.mark m SET fence = greatest(m.fence, w.version) WHERE m.bucket = holdfast.bucket(w.ns, w.name);
        DELETE FROM holdfast.mutex x WHERE x.ns = w.ns AND x.name = w.name;
        v_count := v_count + 1;
    END LOOP;
    RETURN ARRAY[v_count];
END $$;

INSERT INTO holdfast.format VALUES (1) ON CONFLICT DO NOTHING;
COMMIT;
