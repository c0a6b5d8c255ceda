DELIMITER $$
-- The schema of holdfast in MariaDB: tables, and one procedure per verb, in the current database. holdfast runs this
-- itself when a client finds none; 'holdfast schema' prints it for an administrator. It can be run again.
--
--   holdfast_line     all that is kept of one name: kind, capacity, sums of its tickets, last fence
--   holdfast_ticket   one place in a line: state 0 waits, 1 holds; flags 1 revoked (ends at its expiry), 2 kept
--   holdfast_crowd    the waiting tickets of one client, line and ttl: they share one expiry
--   holdfast_revoked  tickets that were taken out at once (kind x) or marked (m): their owners look here
--   holdfast_cell     one small record beside a line
--   holdfast_mark     per bucket of names: the greatest fence of the lines that were removed
--
-- What serialises a line. Every procedure that changes a line locks its row first (SELECT ... FOR UPDATE) and reads
-- tickets only after that. In READ COMMITTED, which a client sets, each statement has a snapshot of its own, taken
-- after the lock was granted; in REPEATABLE READ the snapshot is taken by the first plain SELECT, which also comes
-- after the lock: either sees all that the owner of the lock before us committed. Renewing changes no ticket but
-- one's own, and takes no line: it locks the ticket's row, as the removal of expired tickets does; whichever comes
-- second sees the outcome of the first (the row is gone, or its expiry has moved) and tests its condition again.
--
-- A transaction is one call of a procedure: a crash leaves a line as before or after. Whatever fails in a procedure
-- rolls it back before the error is told. KILL QUERY passes that by: then the client rolls back, and
-- idle_transaction_timeout does if the client is frozen at this moment.
--
-- Invariants: line.n, line.nw and line.total count the tickets of state 1, of state 0, and the weights of state 1;
-- total <= cap; line.soonest is not later than any expiry of state 1 (n > 0).
--
-- Times are microseconds since 1970 by the server's clock. CLOCK is the time at which its statement began: it stands in a
-- statement of its own, after the one that waited for the lock. It does not depend on the time zone of a session.
-- ttl and keep are ms. A grant copies the crowd's expiry and moves nothing (G1). A fence is greater than the line's last
-- one and than the clock was (G2). A line goes ten minutes after its last use, by holdfast_sweep, which first raises the
-- mark of its bucket; a new line reads that mark under a lock.
--
-- Wakes. @holdfast_client is the client of a session. What a call means for other tickets of the same client stands in
-- its answer (@holdfast_news: see holdfast_tell). Other clients are woken by user locks: if @holdfast_wake is 1 the
-- session owns a user lock for each of its tickets, and gives it back when the ticket leaves, after the commit. Who
-- waits behind a ticket of another client waits for that lock on another session (holdfast_await). A lock that is free
-- is only ever a reason to look: whether a place is free is decided by the tables, by rows and times alone.
SET @holdfast_mode = @@sql_mode, sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'
$$
CREATE TABLE IF NOT EXISTS holdfast_format (version BIGINT PRIMARY KEY) ENGINE=InnoDB
$$
CREATE TABLE IF NOT EXISTS holdfast_mark (bucket BIGINT PRIMARY KEY, fence BIGINT NOT NULL) ENGINE=InnoDB
$$
CREATE TABLE IF NOT EXISTS holdfast_line (
    id BIGINT AUTO_INCREMENT PRIMARY KEY,
    ns VARBINARY(255) NOT NULL, name VARBINARY(512) NOT NULL,
    kind BIGINT NOT NULL DEFAULT 0, cap BIGINT NOT NULL DEFAULT 0,
    total BIGINT NOT NULL DEFAULT 0, n BIGINT NOT NULL DEFAULT 0, nw BIGINT NOT NULL DEFAULT 0,
    seq BIGINT NOT NULL DEFAULT 0, fence BIGINT NOT NULL DEFAULT 0, soonest BIGINT NOT NULL DEFAULT 0,
    touched BIGINT NOT NULL DEFAULT 0,
    UNIQUE (ns, name)) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
$$
CREATE TABLE IF NOT EXISTS holdfast_ticket (
    line BIGINT, token BINARY(16), state BIGINT NOT NULL, flags BIGINT NOT NULL DEFAULT 0, weight BIGINT NOT NULL,
    number BIGINT NOT NULL DEFAULT 0, fence BIGINT NOT NULL DEFAULT 0, expiry BIGINT NOT NULL DEFAULT 0,
    joined BIGINT NOT NULL, granted BIGINT NOT NULL DEFAULT 0, ttl BIGINT NOT NULL, client BINARY(8) NOT NULL,
    process BIGINT NOT NULL, owner BIGINT NOT NULL, pid BIGINT NOT NULL, host VARBINARY(255) NOT NULL,
    note VARBINARY(1024) NOT NULL, hints VARBINARY(8300) NOT NULL, sent BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (line, token), KEY queue (line, state, number)) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
$$
CREATE TABLE IF NOT EXISTS holdfast_crowd (
    line BIGINT, client BINARY(8), ttl BIGINT, till BIGINT NOT NULL, many BIGINT NOT NULL,
    PRIMARY KEY (line, client, ttl)) ENGINE=InnoDB
$$
CREATE TABLE IF NOT EXISTS holdfast_revoked (
    line BIGINT, token BINARY(16), client BINARY(8) NOT NULL, kind CHAR(1) NOT NULL, at BIGINT NOT NULL,
    till BIGINT NOT NULL, PRIMARY KEY (line, token), KEY (client, at)) ENGINE=InnoDB
$$
CREATE TABLE IF NOT EXISTS holdfast_cell (
    line BIGINT PRIMARY KEY, data VARBINARY(1024) NOT NULL, version BIGINT NOT NULL, till BIGINT) ENGINE=InnoDB
$$
INSERT IGNORE INTO holdfast_mark SELECT seq, 0 FROM seq_0_to_1023
$$

-- The row of a line, locked; id NULL: there is none, and none was to be made. The mark is read by a statement
-- after the one that made the row, and locked: whoever removed the line before has committed by then.
CREATE OR REPLACE PROCEDURE holdfast_line_of(p_ns VARBINARY(255), p_name VARBINARY(512), p_make BIGINT,
    OUT l ROW TYPE OF holdfast_line) SQL SECURITY INVOKER
BEGIN
    SELECT * INTO l FROM holdfast_line x WHERE x.ns = p_ns AND x.name = p_name FOR UPDATE;
    WHILE l.id IS NULL AND p_make > 0 DO
        INSERT INTO holdfast_line (ns, name, touched) VALUES (p_ns, p_name, CLOCK) ON DUPLICATE KEY UPDATE ns = p_ns;
        IF ROW_COUNT() = 1 THEN
            UPDATE holdfast_line x, holdfast_mark m SET x.fence = m.fence
                WHERE x.ns = p_ns AND x.name = p_name AND m.bucket = CRC32(CONCAT(p_ns, X'00', p_name)) % 1024;
        END IF;
        SELECT * INTO l FROM holdfast_line x WHERE x.ns = p_ns AND x.name = p_name FOR UPDATE;
    END WHILE;
END
$$

-- Of a line that is locked.
CREATE OR REPLACE PROCEDURE holdfast_save(l ROW TYPE OF holdfast_line, p_now BIGINT) SQL SECURITY INVOKER
BEGIN
    UPDATE holdfast_line x SET kind = l.kind, cap = l.cap, total = l.total, n = l.n, nw = l.nw, seq = l.seq,
        fence = l.fence, soonest = l.soonest, touched = p_now WHERE x.id = l.id;
END
$$

-- For the answer, if the ticket is of the same client: a letter, and what it is about, a line each.
--   g TOKEN FENCE TILL   it holds; x TOKEN: it was revoked; m TOKEN: marked; l TOKEN: it should look
--   w TOKEN [LOCK] LINE NOW   it waits, for a lock of another session, or for something that must be looked at
CREATE OR REPLACE PROCEDURE holdfast_tell(p_client BINARY(8), p_kind VARCHAR(1), p_token BINARY(16), p_rest VARCHAR(80))
SQL SECURITY INVOKER
BEGIN
    IF p_client = @holdfast_client THEN
        SET @holdfast_news = CONCAT(@holdfast_news, p_kind, LOWER(HEX(p_token)), p_rest, '\n');
    END IF;
END
$$

-- The user lock of a ticket of this session. It is taken before others can see the ticket.
CREATE OR REPLACE PROCEDURE holdfast_own(p_token BINARY(16)) SQL SECURITY INVOKER
BEGIN
    IF @holdfast_wake = 1 AND NOT IS_USED_LOCK(CONCAT('hf_', HEX(p_token))) <=> CONNECTION_ID() THEN
        DO GET_LOCK(CONCAT('hf_', HEX(p_token)), 0);
    END IF;
END
$$
CREATE OR REPLACE PROCEDURE holdfast_disown(p_token BINARY(16)) SQL SECURITY INVOKER
BEGIN
    IF @holdfast_wake = 1 THEN
        DO RELEASE_LOCK(CONCAT('hf_', HEX(p_token)));
    END IF;
END
$$

CREATE OR REPLACE PROCEDURE holdfast_dequeue(p_line BIGINT, p_client BINARY(8), p_ttl BIGINT) SQL SECURITY INVOKER
BEGIN
    UPDATE holdfast_crowd c SET many = c.many - 1 WHERE c.line = p_line AND c.client = p_client AND c.ttl = p_ttl;
    DELETE FROM holdfast_crowd WHERE line = p_line AND client = p_client AND ttl = p_ttl AND many <= 0;
END
$$

-- Of a line that is locked: whose time is over goes out, the head of the queue goes in while it fits (G3, G5),
-- and those whom it concerns are told, except the tickets in p_named, which the caller tells itself.
-- p_headed: the head may have changed. The caller saves.
CREATE OR REPLACE PROCEDURE holdfast_admit(INOUT l ROW TYPE OF holdfast_line, p_now BIGINT, p_headed BIGINT,
    p_named VARBINARY(1024)) SQL SECURITY INVOKER
BEGIN
    DECLARE v_token BINARY(16);
    DECLARE v_client BINARY(8);
    DECLARE v_weight, v_ttl, v_till, v_many, v_n, v_total, v_soonest BIGINT;
    IF l.n > 0 AND p_now >= l.soonest THEN
        DELETE FROM holdfast_ticket WHERE line = l.id AND state = 1 AND expiry <= p_now;
        SELECT COUNT(*), COALESCE(SUM(x.weight), 0), COALESCE(MIN(x.expiry), 0) INTO v_n, v_total, v_soonest
            FROM holdfast_ticket x WHERE x.line = l.id AND x.state = 1;
        SET l.n = v_n, l.total = v_total, l.soonest = v_soonest;
    END IF;
    queue: WHILE l.nw > 0 DO
        SET v_token = NULL, v_till = NULL;
        SELECT x.token, x.client, x.weight, x.ttl INTO v_token, v_client, v_weight, v_ttl FROM holdfast_ticket x
            WHERE x.line = l.id AND x.state = 0 ORDER BY x.number LIMIT 1;
        IF v_token IS NULL THEN
            SET l.nw = 0;
            LEAVE queue;
        END IF;
        SELECT c.till, c.many INTO v_till, v_many FROM holdfast_crowd c
            WHERE c.line = l.id AND c.client = v_client AND c.ttl = v_ttl;
        IF v_till IS NULL OR v_till <= p_now THEN
            DELETE FROM holdfast_ticket WHERE line = l.id AND state = 0 AND client = v_client AND ttl = v_ttl;
            SET l.nw = l.nw - ROW_COUNT();
            DELETE FROM holdfast_crowd WHERE line = l.id AND client = v_client AND ttl = v_ttl;
            SET p_headed = 1;
            ITERATE queue;
        END IF;
        IF l.total + v_weight > l.cap THEN
            -- perhaps it has just become the first: a hold may end before its next look
            IF p_headed AND l.n > 0 AND l.soonest < v_till - v_ttl * 1000 * (RENEWALS - 1) DIV RENEWALS THEN
                CALL holdfast_tell(v_client, 'l', v_token, '');
            END IF;
            LEAVE queue;
        END IF;
        SET l.fence = GREATEST(l.fence + 1, p_now);
        UPDATE holdfast_ticket x SET state = 1, fence = l.fence, expiry = v_till, granted = p_now
            WHERE x.line = l.id AND x.token = v_token;
        UPDATE holdfast_crowd c SET many = c.many - 1
            WHERE c.line = l.id AND c.client = v_client AND c.ttl = v_ttl;
        IF v_many <= 1 THEN
            DELETE FROM holdfast_crowd WHERE line = l.id AND client = v_client AND ttl = v_ttl;
        END IF;
        SET l.soonest = IF(l.n = 0, v_till, LEAST(l.soonest, v_till));
        SET l.n = l.n + 1, l.nw = l.nw - 1, l.total = l.total + v_weight, p_headed = 1;
        IF LOCATE(v_token, p_named) = 0 THEN
            CALL holdfast_tell(v_client, 'g', v_token, CONCAT(l.fence, ' ', v_till));
        END IF;
    END WHILE;
END
$$

-- Of a waiting ticket, the first of this client: whom it waits for, and in how many ms (rounded up, -1: never) the
-- time of that one is over: the nearest in front that cannot hold beside it, else one that holds. For permits there is
-- no such one.
CREATE OR REPLACE PROCEDURE holdfast_front(l ROW TYPE OF holdfast_line, p_now BIGINT, p_token BINARY(16),
    p_number BIGINT, p_weight BIGINT, OUT p_recheck BIGINT) SQL SECURITY INVOKER
BEGIN
    DECLARE v_token BINARY(16);
    DECLARE v_client BINARY(8);
    DECLARE v_till BIGINT;
    IF l.kind = 0 THEN
        SELECT x.token, x.client, c.till INTO v_token, v_client, v_till FROM holdfast_ticket x
            LEFT JOIN holdfast_crowd c ON c.line = x.line AND c.client = x.client AND c.ttl = x.ttl
            WHERE x.line = l.id AND x.state = 0 AND x.number < p_number AND x.weight + p_weight > l.cap
            ORDER BY x.number DESC LIMIT 1;
    END IF;
    IF v_token IS NULL THEN
        SET v_till = IF(l.n > 0, l.soonest, NULL);
        IF l.kind = 0 THEN
            SELECT x.token, x.client INTO v_token, v_client FROM holdfast_ticket x
                WHERE x.line = l.id AND x.state = 1 ORDER BY x.weight DESC, x.expiry DESC LIMIT 1;
        END IF;
    END IF;
    SET p_recheck = COALESCE(GREATEST(v_till - p_now + 999, 0) DIV 1000, -1);
    IF @holdfast_wake = 1 AND NOT v_client <=> @holdfast_client THEN
        CALL holdfast_tell(@holdfast_client, 'w', p_token, CONCAT(
            IF(IS_USED_LOCK(CONCAT('hf_', HEX(v_token))) IS NULL, '', LOWER(HEX(v_token))), ' ', l.id, ' ', p_now));
    END IF;
END
$$

-- The same for whoever is the first of this client now.
CREATE OR REPLACE PROCEDURE holdfast_next(l ROW TYPE OF holdfast_line, p_now BIGINT) SQL SECURITY INVOKER
BEGIN
    DECLARE v_token BINARY(16);
    DECLARE v_number, v_weight, v_recheck BIGINT;
    IF @holdfast_wake = 1 AND l.nw > 0
            AND EXISTS (SELECT 1 FROM holdfast_crowd c WHERE c.line = l.id AND c.client = @holdfast_client) THEN
        SELECT x.token, x.number, x.weight INTO v_token, v_number, v_weight FROM holdfast_ticket x
            WHERE x.line = l.id AND x.state = 0 AND x.client = @holdfast_client ORDER BY x.number LIMIT 1;
        IF v_token IS NOT NULL THEN
            CALL holdfast_front(l, p_now, v_token, v_number, v_weight, v_recheck);
        END IF;
    END IF;
END
$$

-- The long way of join, in its transaction.
CREATE OR REPLACE PROCEDURE holdfast_join_line(p_ns VARBINARY(255), p_name VARBINARY(512), p_token BINARY(16), p_kind BIGINT,
    p_cap BIGINT, p_weight BIGINT, p_ttl BIGINT, p_flags BIGINT, p_client BINARY(8), p_process BIGINT, p_owner BIGINT,
    p_pid BIGINT, p_host VARBINARY(255), p_note VARBINARY(1024), p_hints VARBINARY(8300)) SQL SECURITY INVOKER
BEGIN
    DECLARE l ROW TYPE OF holdfast_line;
    DECLARE v_now, v_end, v_state, v_flags, v_weight, v_number, v_fence, v_place, v_many BIGINT;
    DECLARE v_recheck BIGINT DEFAULT -1;
    DECLARE v_answer TEXT DEFAULT '2';
    CALL holdfast_line_of(p_ns, p_name, 1, l);
    SET v_now = CLOCK;
    SET v_end = v_now + p_ttl * 1000;
    body: BEGIN
        IF (l.n > 0 AND v_now >= l.soonest) OR (l.nw > 0 AND l.total + p_weight <= l.cap) THEN
            CALL holdfast_admit(l, v_now, 0, p_token); -- those in front may have died
            UPDATE holdfast_line x SET kind = l.kind, cap = l.cap, total = l.total, n = l.n, nw = l.nw, seq = l.seq, fence = l.fence,
            soonest = l.soonest, touched = v_now WHERE x.id = l.id;
        END IF;
        IF l.n + l.nw > 0 THEN
            SELECT x.state, x.flags, x.weight, x.number, x.fence INTO v_state, v_flags, v_weight, v_number, v_fence
                FROM holdfast_ticket x WHERE x.line = l.id AND x.token = p_token;
        END IF;
        IF v_state = 1 AND v_flags = 0 THEN
            -- this may come late, and its owner have renewed it for longer
            UPDATE holdfast_ticket x SET expiry = GREATEST(x.expiry, v_end), ttl = GREATEST(x.ttl, p_ttl)
                WHERE x.line = l.id AND x.token = p_token;
            CALL holdfast_own(p_token);
            SET v_answer = CONCAT_WS(',', 0, v_fence, 0, 0, 0, l.id);
            LEAVE body;
        ELSEIF v_state = 1 AND v_flags >= 2 THEN -- left already: a late one of these
            LEAVE body;
        ELSEIF v_state = 1 THEN -- revoked before its owner knew of it: its time may not count anew
            DELETE FROM holdfast_ticket WHERE line = l.id AND token = p_token;
            SET l.n = l.n - 1, l.total = l.total - v_weight, v_answer = '3';
            CALL holdfast_admit(l, v_now, 1, '');
            UPDATE holdfast_line x SET kind = l.kind, cap = l.cap, total = l.total, n = l.n, nw = l.nw, seq = l.seq, fence = l.fence,
            soonest = l.soonest, touched = v_now WHERE x.id = l.id;
            LEAVE body;
        END IF;
        IF v_state IS NULL THEN
            IF l.n = 0 AND l.nw = 0 THEN
                SET l.kind = p_kind, l.cap = p_cap;
            ELSEIF l.kind <> p_kind OR l.cap <> p_cap THEN
                SET v_answer = CONCAT_WS(',', 4, l.kind, l.cap);
                LEAVE body;
            END IF;
            IF l.total + p_weight <= l.cap AND (l.nw = 0 OR (p_flags & 2) > 0) THEN
                SET l.fence = GREATEST(l.fence + 1, v_now), l.soonest = IF(l.n = 0, v_end, LEAST(l.soonest, v_end));
                SET l.n = l.n + 1, l.total = l.total + p_weight;
                CALL holdfast_own(p_token);
                INSERT INTO holdfast_ticket VALUES (l.id, p_token, 1, 0, p_weight, 0, l.fence, v_end, v_now, v_now,
                    p_ttl, p_client, p_process, p_owner, p_pid, p_host, p_note, p_hints, 0);
                UPDATE holdfast_line x SET kind = l.kind, cap = l.cap, total = l.total, n = l.n, nw = l.nw, seq = l.seq, fence = l.fence,
            soonest = l.soonest, touched = v_now WHERE x.id = l.id;
                SET v_answer = CONCAT_WS(',', 0, l.fence, 0, 0, 0, l.id);
                LEAVE body;
            END IF;
            IF (p_flags & 1) > 0 THEN
                LEAVE body;
            END IF;
            SET l.seq = l.seq + 1, l.nw = l.nw + 1, v_number = l.seq, v_place = l.nw, v_weight = p_weight;
            INSERT INTO holdfast_ticket VALUES (l.id, p_token, 0, 0, p_weight, l.seq, 0, 0, v_now, 0, p_ttl, p_client,
                p_process, p_owner, p_pid, p_host, p_note, p_hints, 0);
        ELSE
            SELECT COUNT(*) INTO v_place FROM holdfast_ticket x
                WHERE x.line = l.id AND x.state = 0 AND x.number <= v_number;
        END IF;
        CALL holdfast_own(p_token);
        INSERT INTO holdfast_crowd VALUES (l.id, p_client, p_ttl, v_end, 1)
            ON DUPLICATE KEY UPDATE till = v_end, many = many + IF(v_state IS NULL, 1, 0);
        SELECT c.many INTO v_many FROM holdfast_crowd c WHERE c.line = l.id AND c.client = p_client AND c.ttl = p_ttl;
        UPDATE holdfast_line x SET kind = l.kind, cap = l.cap, total = l.total, n = l.n, nw = l.nw, seq = l.seq, fence = l.fence,
            soonest = l.soonest, touched = v_now WHERE x.id = l.id;
        IF v_place = 1 OR v_many = 1 OR v_state = 0 THEN
            CALL holdfast_front(l, v_now, p_token, v_number, v_weight, v_recheck);
        END IF;
        SET v_answer = CONCAT_WS(',', 1, v_end, v_recheck, v_number, v_place, l.id);
    END;
    COMMIT;
    SELECT v_answer, @holdfast_news;
END
$$

-- join: stand in line, or take the place if there is room (G1, G2, G3, G7). p_flags: 1 try, 2 barge.
-- Answers 0, fence, 0, 0, 0, line: it holds; 1, crowd's till, recheck, number, position, line: it waits;
-- 2: busy, and not in line; 3: revoked; 4, kind, capacity: another kind of line.
-- Repeatable: a token that is in line answers its place, and its owner's time counts anew.
-- The short way: nobody is in this line. Most are like that, and it calls no other procedure: that is dear.
CREATE OR REPLACE PROCEDURE holdfast_join(p_ns VARBINARY(255), p_name VARBINARY(512), p_token BINARY(16), p_kind BIGINT,
    p_cap BIGINT, p_weight BIGINT, p_ttl BIGINT, p_flags BIGINT, p_client BINARY(8), p_process BIGINT, p_owner BIGINT,
    p_pid BIGINT, p_host VARBINARY(255), p_note VARBINARY(1024), p_hints VARBINARY(8300)) SQL SECURITY INVOKER
BEGIN
    DECLARE v_now, v_line, v_n, v_fence BIGINT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    SET @holdfast_news = '';
    START TRANSACTION;
    SELECT x.id, x.n + x.nw, x.fence INTO v_line, v_n, v_fence FROM holdfast_line x
        WHERE x.ns = p_ns AND x.name = p_name FOR UPDATE;
    IF v_n = 0 AND p_weight <= p_cap THEN
        SET v_now = CLOCK;
        SET v_fence = GREATEST(v_fence + 1, v_now);
        IF @holdfast_wake = 1 AND NOT IS_USED_LOCK(CONCAT('hf_', HEX(p_token))) <=> CONNECTION_ID() THEN
            DO GET_LOCK(CONCAT('hf_', HEX(p_token)), 0);
        END IF;
        INSERT INTO holdfast_ticket VALUES (v_line, p_token, 1, 0, p_weight, 0, v_fence, v_now + p_ttl * 1000, v_now,
            v_now, p_ttl, p_client, p_process, p_owner, p_pid, p_host, p_note, p_hints, 0);
        UPDATE holdfast_line x SET kind = p_kind, cap = p_cap, n = 1, total = p_weight, fence = v_fence,
            soonest = v_now + p_ttl * 1000, touched = v_now WHERE x.id = v_line;
        COMMIT;
        SELECT CONCAT_WS(',', 0, v_fence, 0, 0, 0, v_line), '';
    ELSE
        CALL holdfast_join_line(p_ns, p_name, p_token, p_kind, p_cap, p_weight, p_ttl, p_flags, p_client, p_process, p_owner, p_pid, p_host, p_note,
            p_hints);
    END IF;
END
$$

-- wait: the waiting tickets of a client are alive, and what became of the oldest of them: the safety look (G1,
-- G4, G5). p_tokens: 16 bytes each. Answers crowd's till (0: no such crowd), its count, recheck, then for each
-- token: 0 gone, 1 revoked, below 0: it waits, at minus its position, or its fence: it holds, and its time
-- counts anew, if it did not last for longer.
CREATE OR REPLACE PROCEDURE holdfast_wait(p_ns VARBINARY(255), p_name VARBINARY(512), p_client BINARY(8), p_ttl BIGINT,
    p_tokens VARBINARY(1024)) SQL SECURITY INVOKER
BEGIN
    DECLARE l ROW TYPE OF holdfast_line;
    DECLARE v_now, v_end, v_till, v_many, v_state, v_flags, v_weight, v_number, v_fence, v_expiry, v_said BIGINT;
    DECLARE v_place, v_last, v_at, v_first BIGINT DEFAULT 0;
    DECLARE v_recheck BIGINT DEFAULT -1;
    DECLARE v_token BINARY(16);
    DECLARE v_states TEXT DEFAULT '';
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    SET @holdfast_news = '';
    START TRANSACTION;
    SELECT * INTO l FROM holdfast_line x WHERE x.ns = p_ns AND x.name = p_name FOR UPDATE;
    SET v_now = CLOCK;
    SET v_end = v_now + p_ttl * 1000;
    IF l.id IS NOT NULL THEN
        UPDATE holdfast_crowd c SET till = v_end WHERE c.line = l.id AND c.client = p_client AND c.ttl = p_ttl;
        CALL holdfast_admit(l, v_now, 0, p_tokens);
    END IF;
    WHILE v_at < LENGTH(p_tokens) DO
        SET v_token = SUBSTR(p_tokens, v_at + 1, 16), v_at = v_at + 16, v_said = 0, v_state = NULL;
        SELECT x.state, x.flags, x.weight, x.number, x.fence, x.expiry
            INTO v_state, v_flags, v_weight, v_number, v_fence, v_expiry
            FROM holdfast_ticket x WHERE x.line = l.id AND x.token = v_token;
        IF v_state = 1 AND v_flags = 0 AND v_expiry > v_now THEN
            -- this may come late, and its owner have renewed it for longer
            UPDATE holdfast_ticket x SET expiry = GREATEST(x.expiry, v_end), ttl = GREATEST(x.ttl, p_ttl)
                WHERE x.line = l.id AND x.token = v_token;
            SET v_said = v_fence;
        ELSEIF v_state = 1 AND v_flags = 1 THEN -- before its owner knew of it
            SET v_said = 1;
        ELSEIF v_state = 0 THEN
            -- they are named in the order of the queue: counted from the one before
            SELECT v_place + COUNT(*) INTO v_place FROM holdfast_ticket x WHERE x.line = l.id AND x.state = 0
                AND x.number > v_last AND x.number <= v_number;
            SET v_last = v_number, v_said = -v_place;
            IF v_first = 0 THEN
                SET v_first = v_said;
                CALL holdfast_front(l, v_now, v_token, v_number, v_weight, v_recheck);
            END IF;
        ELSEIF v_state IS NULL AND EXISTS (SELECT 1 FROM holdfast_revoked r
                WHERE r.line = l.id AND r.token = v_token AND r.kind = 'x') THEN
            SET v_said = 1;
        END IF;
        IF v_said BETWEEN 0 AND 1 THEN
            CALL holdfast_disown(v_token);
        ELSE
            CALL holdfast_own(v_token);
        END IF;
        SET v_states = CONCAT(v_states, ',', v_said);
    END WHILE;
    IF l.id IS NOT NULL THEN
        SELECT c.till, c.many INTO v_till, v_many FROM holdfast_crowd c
            WHERE c.line = l.id AND c.client = p_client AND c.ttl = p_ttl;
        UPDATE holdfast_line x SET kind = l.kind, cap = l.cap, total = l.total, n = l.n, nw = l.nw, seq = l.seq, fence = l.fence,
            soonest = l.soonest, touched = v_now WHERE x.id = l.id;
    END IF;
    COMMIT;
    SELECT CONCAT(COALESCE(v_till, 0), ',', COALESCE(v_many, 0), ',', v_recheck, v_states), @holdfast_news;
END
$$

-- await: on a session of its own: returns when nobody owns the user lock of p_front any more, or after p_seconds; then
-- says which tickets of the client have got in since p_since, and whom the first of those that wait waits for.
CREATE OR REPLACE PROCEDURE holdfast_await(p_client BINARY(8), p_front VARBINARY(16), p_line BIGINT, p_since BIGINT,
    p_seconds BIGINT) SQL SECURITY INVOKER
BEGIN
    DECLARE l ROW TYPE OF holdfast_line;
    DECLARE v_now BIGINT;
    SET @holdfast_client = p_client, @holdfast_wake = 1, @holdfast_news = '';
    IF GET_LOCK(CONCAT('hf_', HEX(p_front)), p_seconds) = 1 THEN
        DO RELEASE_LOCK(CONCAT('hf_', HEX(p_front)));
    END IF;
    SET v_now = CLOCK;
    SELECT * INTO l FROM holdfast_line x WHERE x.id = p_line;
    FOR t IN (SELECT x.token, x.fence, x.expiry FROM holdfast_ticket x WHERE x.line = p_line AND x.state = 1
            AND x.client = p_client AND x.granted >= p_since AND x.number > 0) DO
        CALL holdfast_tell(p_client, 'g', t.token, CONCAT(t.fence, ' ', t.expiry));
    END FOR;
    CALL holdfast_next(l, v_now);
    SELECT 0, @holdfast_news;
END
$$

-- Of a line that is locked: the hold ends by itself p_keep ms from now, and by nothing its owner does.
CREATE OR REPLACE PROCEDURE holdfast_last_for(l ROW TYPE OF holdfast_line, p_now BIGINT, p_token BINARY(16),
    p_flags BIGINT, p_keep BIGINT) SQL SECURITY INVOKER
BEGIN
    DECLARE v_token BINARY(16);
    DECLARE v_client BINARY(8);
    UPDATE holdfast_ticket x SET flags = p_flags, expiry = p_now + p_keep * 1000
        WHERE x.line = l.id AND x.token = p_token;
    SET l.soonest = LEAST(l.soonest, p_now + p_keep * 1000);
    SELECT x.token, x.client INTO v_token, v_client FROM holdfast_ticket x
        WHERE x.line = l.id AND x.state = 0 ORDER BY x.number LIMIT 1; -- the head must learn when to look
    CALL holdfast_tell(v_client, 'l', v_token, '');
    CALL holdfast_save(l, p_now);
END
$$

-- The long way of leave, in its transaction.
CREATE OR REPLACE PROCEDURE holdfast_leave_line(p_ns VARBINARY(255), p_name VARBINARY(512), p_token BINARY(16), p_keep BIGINT)
SQL SECURITY INVOKER
BEGIN
    DECLARE l ROW TYPE OF holdfast_line;
    DECLARE v_now, v_state, v_flags, v_weight, v_number, v_ttl BIGINT;
    DECLARE v_client BINARY(8);
    DECLARE v_answer BIGINT DEFAULT 0;
    SELECT * INTO l FROM holdfast_line x WHERE x.ns = p_ns AND x.name = p_name FOR UPDATE;
    SET v_now = CLOCK;
    SELECT x.state, x.flags, x.weight, x.number, x.ttl, x.client
        INTO v_state, v_flags, v_weight, v_number, v_ttl, v_client
        FROM holdfast_ticket x WHERE x.line = l.id AND x.token = p_token;
    IF v_state = 1 AND p_keep > 0 THEN
        IF v_flags < 2 THEN
            CALL holdfast_last_for(l, v_now, p_token, v_flags + 2, p_keep);
        END IF;
        SET v_answer = 1;
    ELSEIF v_state IS NOT NULL THEN
        DELETE FROM holdfast_ticket WHERE line = l.id AND token = p_token;
        IF v_state = 1 THEN
            SET l.n = l.n - 1, l.total = l.total - v_weight;
        ELSE
            SET l.nw = l.nw - 1;
            CALL holdfast_dequeue(l.id, v_client, v_ttl);
        END IF;
        IF l.nw > 0 THEN
            CALL holdfast_admit(l, v_now, v_state = 0, '');
            CALL holdfast_next(l, v_now);
        END IF;
        UPDATE holdfast_line x SET kind = l.kind, cap = l.cap, total = l.total, n = l.n, nw = l.nw, seq = l.seq, fence = l.fence,
            soonest = l.soonest, touched = v_now WHERE x.id = l.id;
        SET v_answer = 1;
    END IF;
    COMMIT;
    IF @holdfast_wake = 1 THEN
        DO RELEASE_LOCK(CONCAT('hf_', HEX(p_token)));
    END IF;
    SELECT v_answer, @holdfast_news;
END
$$

-- leave: give the place up and admit the next in the same step (G4, G7, G8). p_keep > 0: of a hold: the store
-- ends it after so many ms by itself. Answers 1, or 0: it was not there. Repeatable.
-- The short way: one holds, and nobody waits.
CREATE OR REPLACE PROCEDURE holdfast_leave(p_ns VARBINARY(255), p_name VARBINARY(512), p_token BINARY(16), p_keep BIGINT)
SQL SECURITY INVOKER
BEGIN
    DECLARE v_line, v_n, v_nw, v_answer BIGINT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    SET @holdfast_news = '';
    START TRANSACTION;
    SELECT x.id, x.n, x.nw INTO v_line, v_n, v_nw FROM holdfast_line x
        WHERE x.ns = p_ns AND x.name = p_name FOR UPDATE;
    IF v_n = 1 AND v_nw = 0 AND p_keep = 0 THEN
        DELETE FROM holdfast_ticket WHERE line = v_line AND token = p_token;
        SET v_answer = ROW_COUNT();
        IF v_answer = 1 THEN
            UPDATE holdfast_line x SET n = 0, total = 0, touched = CLOCK WHERE x.id = v_line;
        END IF;
        COMMIT;
        IF @holdfast_wake = 1 THEN
            DO RELEASE_LOCK(CONCAT('hf_', HEX(p_token)));
        END IF;
        SELECT v_answer, '';
    ELSE
        CALL holdfast_leave_line(p_ns, p_name, p_token, p_keep);
    END IF;
END
$$

-- keep: a place that its owner has left (leave with p_keep) lasts for so long from now instead; p_orphan 1: one
-- that is held, too, which becomes a kept one. Answers 1, or 0: no such ticket, or none of these. One whose time is
-- over is not revived.
CREATE OR REPLACE PROCEDURE holdfast_keep(p_ns VARBINARY(255), p_name VARBINARY(512), p_token BINARY(16), p_keep BIGINT,
    p_orphan BIGINT) SQL SECURITY INVOKER
BEGIN
    DECLARE l ROW TYPE OF holdfast_line;
    DECLARE v_now, v_answer BIGINT DEFAULT 0;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    SET @holdfast_news = '';
    START TRANSACTION;
    SELECT * INTO l FROM holdfast_line x WHERE x.ns = p_ns AND x.name = p_name FOR UPDATE;
    SET v_now = CLOCK;
    IF EXISTS (SELECT 1 FROM holdfast_ticket x WHERE x.line = l.id AND x.token = p_token AND x.state = 1
            AND (x.flags = 2 OR (p_orphan > 0 AND x.flags = 0)) AND x.expiry > v_now) THEN
        CALL holdfast_last_for(l, v_now, p_token, 2, p_keep);
        SET v_answer = 1;
    END IF;
    COMMIT;
    SELECT v_answer, @holdfast_news;
END
$$

-- renew: many holds of one client are alive (G1, G8). Answers for each: 1 renewed, 0 gone or over: never
-- revived, because another may have been told that the place is free; 2 marked: it ends at its expiry;
-- 3 it holds (ttl 0: only asked). Takes no line, unless a hold shall end sooner than before (a shorter ttl, a
-- clock that was set back): then the line must know of it, too.
-- p_lines, p_ttls: 8 bytes each, the highest first. p_sent: when it was sent, by the clock of the client. One that was
-- sent before the last one that was executed comes late, from a connection that was lost: its owner may rely on a longer
-- ttl by now. It shortens nothing.
CREATE OR REPLACE PROCEDURE holdfast_renew(p_sent BIGINT, p_lines VARBINARY(1024), p_tokens VARBINARY(2048),
    p_ttls VARBINARY(1024)) SQL SECURITY INVOKER
BEGIN
    DECLARE v_now, v_end, v_line, v_ttl, v_flags, v_expiry, v_sent, v_said BIGINT;
    DECLARE v_at BIGINT DEFAULT 0;
    DECLARE v_token BINARY(16);
    DECLARE v_answer TEXT DEFAULT '';
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    SET @holdfast_news = '';
    START TRANSACTION;
    WHILE v_at < LENGTH(p_tokens) DIV 16 DO
        SET v_line = CONV(HEX(SUBSTR(p_lines, v_at * 8 + 1, 8)), 16, 10),
            v_ttl = CONV(HEX(SUBSTR(p_ttls, v_at * 8 + 1, 8)), 16, 10),
            v_token = SUBSTR(p_tokens, v_at * 16 + 1, 16), v_expiry = NULL, v_said = 0;
        SELECT x.flags, x.expiry, x.sent INTO v_flags, v_expiry, v_sent FROM holdfast_ticket x
            WHERE x.line = v_line AND x.token = v_token AND x.state = 1 FOR UPDATE;
        SET v_now = CLOCK;
        SET v_end = v_now + v_ttl * 1000;
        IF v_expiry IS NULL OR v_expiry <= v_now OR v_flags > 1 THEN
            SET v_said = 0;
            CALL holdfast_disown(v_token);
        ELSEIF v_flags = 1 THEN
            SET v_said = 2;
        ELSEIF v_ttl = 0 THEN
            SET v_said = 3;
        ELSE
            IF v_end < v_expiry AND p_sent >= v_sent THEN
                UPDATE holdfast_line x SET soonest = LEAST(x.soonest, v_end) WHERE x.id = v_line;
            END IF;
            UPDATE holdfast_ticket x SET ttl = IF(v_sent > p_sent, x.ttl, v_ttl),
                expiry = IF(v_sent > p_sent, GREATEST(x.expiry, v_end), v_end), sent = GREATEST(x.sent, p_sent)
                WHERE x.line = v_line AND x.token = v_token;
            SET v_said = 1;
            CALL holdfast_own(v_token);
        END IF;
        SET v_answer = CONCAT(v_answer, IF(v_at > 0, ',', ''), v_said), v_at = v_at + 1;
    END WHILE;
    COMMIT;
    SELECT v_answer, @holdfast_news;
END
$$

-- amend: of a hold: a smaller weight, another record; admits the next in the same step. Answers 1, 0: it does
-- not hold. Repeatable.
CREATE OR REPLACE PROCEDURE holdfast_amend(p_ns VARBINARY(255), p_name VARBINARY(512), p_token BINARY(16),
    p_weight BIGINT, p_process BIGINT, p_owner BIGINT, p_note VARBINARY(1024), p_hints VARBINARY(8300))
SQL SECURITY INVOKER
BEGIN
    DECLARE l ROW TYPE OF holdfast_line;
    DECLARE v_now, v_weight BIGINT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    SET @holdfast_news = '';
    START TRANSACTION;
    SELECT * INTO l FROM holdfast_line x WHERE x.ns = p_ns AND x.name = p_name FOR UPDATE;
    SET v_now = CLOCK;
    SELECT x.weight INTO v_weight FROM holdfast_ticket x
        WHERE x.line = l.id AND x.token = p_token AND x.state = 1 AND x.expiry > v_now;
    IF v_weight IS NOT NULL THEN
        UPDATE holdfast_ticket x SET weight = LEAST(x.weight, p_weight), process = p_process, owner = p_owner,
            note = p_note, hints = p_hints WHERE x.line = l.id AND x.token = p_token;
        SET l.total = l.total - v_weight + LEAST(v_weight, p_weight);
        CALL holdfast_admit(l, v_now, 0, '');
        CALL holdfast_next(l, v_now);
        CALL holdfast_save(l, v_now);
    END IF;
    COMMIT;
    SELECT v_weight IS NOT NULL, @holdfast_news;
END
$$

-- For the owner of a ticket, who learns it from the answer if it is this client, else from holdfast_notices.
CREATE OR REPLACE PROCEDURE holdfast_revoke(p_line BIGINT, p_token BINARY(16), p_client BINARY(8), p_kind CHAR(1),
    p_now BIGINT, p_till BIGINT) SQL SECURITY INVOKER
BEGIN
    DELETE FROM holdfast_revoked WHERE line = p_line AND till <= p_now;
    REPLACE INTO holdfast_revoked VALUES (p_line, p_token, p_client, p_kind, p_now, p_till);
    CALL holdfast_tell(p_client, p_kind, p_token, '');
END
$$

-- notices: which tickets of this client were revoked or marked since p_since, by the server's clock; 0: in these
-- ten seconds. Answers the time for the next one: earlier than now, because what is committed later may have an
-- earlier time.
CREATE OR REPLACE PROCEDURE holdfast_notices(p_since BIGINT) SQL SECURITY INVOKER
BEGIN
    DECLARE v_now BIGINT;
    SET @holdfast_news = '', v_now = CLOCK;
    FOR r IN (SELECT x.token, x.kind FROM holdfast_revoked x WHERE x.client = @holdfast_client
            AND x.at >= IF(p_since > 0, p_since, v_now - 10000000)) DO
        CALL holdfast_tell(@holdfast_client, r.kind, r.token, '');
        IF r.kind = 'x' THEN
            CALL holdfast_disown(r.token);
        END IF;
    END FOR;
    SELECT v_now - 2000000, @holdfast_news;
END
$$

-- evict: end one ticket, named by its token (G8): with p_at_once, or (a hold) by ending its renewal. A kept one
-- has no owner who could be told, and ends at once. Answers 1, 0: no such ticket.
CREATE OR REPLACE PROCEDURE holdfast_evict(p_ns VARBINARY(255), p_name VARBINARY(512), p_token BINARY(16),
    p_at_once BIGINT) SQL SECURITY INVOKER
BEGIN
    DECLARE l ROW TYPE OF holdfast_line;
    DECLARE v_now, v_state, v_flags, v_weight, v_ttl, v_expiry BIGINT;
    DECLARE v_client BINARY(8);
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    SET @holdfast_news = '';
    START TRANSACTION;
    SELECT * INTO l FROM holdfast_line x WHERE x.ns = p_ns AND x.name = p_name FOR UPDATE;
    SET v_now = CLOCK;
    SELECT x.state, x.flags, x.weight, x.ttl, x.expiry, x.client
        INTO v_state, v_flags, v_weight, v_ttl, v_expiry, v_client
        FROM holdfast_ticket x WHERE x.line = l.id AND x.token = p_token;
    IF v_state = 1 AND p_at_once = 0 AND v_flags < 2 THEN
        UPDATE holdfast_ticket x SET flags = 1 WHERE x.line = l.id AND x.token = p_token;
        CALL holdfast_revoke(l.id, p_token, v_client, 'm', v_now, v_expiry);
    ELSEIF v_state IS NOT NULL THEN
        IF v_state = 0 THEN
            SELECT c.till INTO v_expiry FROM holdfast_crowd c
                WHERE c.line = l.id AND c.client = v_client AND c.ttl = v_ttl;
            SET l.nw = l.nw - 1;
            CALL holdfast_dequeue(l.id, v_client, v_ttl);
        ELSE
            SET l.n = l.n - 1, l.total = l.total - v_weight;
        END IF;
        DELETE FROM holdfast_ticket WHERE line = l.id AND token = p_token;
        IF v_flags < 2 THEN -- a kept one is nobody's
            CALL holdfast_revoke(l.id, p_token, v_client, 'x', v_now, v_expiry);
        END IF;
        CALL holdfast_admit(l, v_now, 1, '');
        CALL holdfast_next(l, v_now);
        CALL holdfast_save(l, v_now);
    END IF;
    COMMIT;
    SELECT v_state IS NOT NULL, @holdfast_news;
END
$$

-- look: a line as it is, one row for each ticket whose time is not over, those that hold first; if there is no
-- such ticket one row with token NULL, or none. Changes nothing. p_front: of the queue only that ticket and those in
-- front of it. p_notes 0: without notes. p_client, p_follow: nobody is told of changes here.
CREATE OR REPLACE PROCEDURE holdfast_look(p_ns VARBINARY(255), p_name VARBINARY(512), p_client BINARY(8), p_follow BIGINT,
    p_front VARBINARY(16), p_notes BIGINT) SQL SECURITY INVOKER
BEGIN
    DECLARE v_now, v_last BIGINT;
    SET v_now = CLOCK;
    SELECT t.number INTO v_last FROM holdfast_line l JOIN holdfast_ticket t ON t.line = l.id
        WHERE l.ns = p_ns AND l.name = p_name AND t.token = p_front AND t.state = 0;
    -- no expiry is shown as further ahead than its ttl
    SELECT v_now, l.kind, l.cap, t.token, t.state, t.flags, t.weight, t.fence, IF(t.state = 1 AND t.flags < 2,
        LEAST(t.till, v_now + t.ttl * 1000), t.till), t.joined, t.granted, t.process, t.owner, t.pid, t.host,
        IF(p_notes > 0, t.note, ''), t.hints
        FROM holdfast_line l LEFT JOIN
            (SELECT x.*, IF(x.state = 1, x.expiry, c.till) AS till FROM holdfast_ticket x
             LEFT JOIN holdfast_crowd c ON c.line = x.line AND c.client = x.client AND c.ttl = x.ttl) t
            ON t.line = l.id AND t.till > v_now AND (t.state = 1 OR v_last IS NULL OR t.number <= v_last)
        WHERE l.ns = p_ns AND l.name = p_name
        ORDER BY t.state DESC, IF(t.state = 1, t.fence, t.number);
END
$$

-- list: lines in which somebody is, by name: name, kind, capacity, how many hold, how many wait, ms since the
-- oldest grant or -1, sum of the weights that hold. Names behind p_after, from p_from on, below p_below ('': no end).
CREATE OR REPLACE PROCEDURE holdfast_list(p_ns VARBINARY(255), p_after VARBINARY(512), p_from VARBINARY(513),
    p_below VARBINARY(513), p_limit BIGINT) SQL SECURITY INVOKER
BEGIN
    DECLARE v_now BIGINT;
    SET v_now = CLOCK;
    SELECT l.name, l.kind, l.cap,
        (SELECT COUNT(*) FROM holdfast_ticket t WHERE t.line = l.id AND t.state = 1 AND t.expiry > v_now) AS h,
        (SELECT COUNT(*) FROM holdfast_ticket t JOIN holdfast_crowd c ON c.line = t.line AND c.client = t.client
            AND c.ttl = t.ttl WHERE t.line = l.id AND t.state = 0 AND c.till > v_now) AS w,
        (SELECT COALESCE(GREATEST((v_now - MIN(t.granted)) DIV 1000, 0), -1) FROM holdfast_ticket t
            WHERE t.line = l.id AND t.state = 1 AND t.expiry > v_now),
        (SELECT COALESCE(SUM(t.weight), 0) FROM holdfast_ticket t
            WHERE t.line = l.id AND t.state = 1 AND t.expiry > v_now)
        FROM holdfast_line l
        WHERE l.ns = p_ns AND l.name > p_after AND l.name >= p_from AND (p_below = '' OR l.name < p_below)
            AND l.n + l.nw > 0
        HAVING h + w > 0 ORDER BY l.name LIMIT p_limit;
END
$$

-- cell: one small record beside a line. p_verb 0 get 1 put 2 add 3 del; p_any 0: only if its version is
-- p_version (0: there is none). Versions come from the line's fence, so they grow over deletion and expiry.
-- Answers rc (0, -1 another version, -2 no number or too great), version (0: none), data, ms until it expires
-- or -1.
CREATE OR REPLACE PROCEDURE holdfast_cell_do(p_ns VARBINARY(255), p_name VARBINARY(512), p_client BINARY(8),
    p_follow BIGINT, p_verb BIGINT, p_any BIGINT, p_version BIGINT, p_add BIGINT, p_ttl BIGINT, p_data VARBINARY(1024))
SQL SECURITY INVOKER
BEGIN
    DECLARE l ROW TYPE OF holdfast_line;
    DECLARE v_now, v_till BIGINT;
    DECLARE v_version, v_rc BIGINT DEFAULT 0;
    DECLARE v_data VARBINARY(1024);
    DECLARE v_sum DECIMAL(40);
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    START TRANSACTION;
    IF p_verb = 0 THEN
        SELECT * INTO l FROM holdfast_line x WHERE x.ns = p_ns AND x.name = p_name;
    ELSE
        CALL holdfast_line_of(p_ns, p_name, p_verb < 3, l);
    END IF;
    SET v_now = CLOCK;
    SELECT c.data, c.version, c.till INTO v_data, v_version, v_till FROM holdfast_cell c WHERE c.line = l.id;
    IF v_till <= v_now THEN
        SET v_data = NULL, v_version = 0, v_till = NULL;
    END IF;
    IF p_verb IN (1, 3) AND p_any = 0 AND v_version <> p_version THEN
        SET v_rc = -1;
    ELSEIF p_verb = 2 THEN
        IF COALESCE(v_data, '0') RLIKE '^(0|-?[1-9][0-9]{0,18})$' THEN
            SET v_sum = CAST(COALESCE(v_data, '0') AS DECIMAL(40)) + p_add;
        END IF;
        IF v_sum BETWEEN -9223372036854775808 AND 9223372036854775807 THEN
            SET p_data = v_sum;
        ELSE
            SET v_rc = -2;
        END IF;
    END IF;
    IF v_rc = 0 AND p_verb > 0 AND (p_verb < 3 OR v_version > 0) THEN
        SET l.fence = GREATEST(l.fence + 1, v_now);
        IF p_verb = 3 THEN
            DELETE FROM holdfast_cell WHERE line = l.id;
            SET v_data = NULL, v_version = 0, v_till = NULL;
        ELSE
            SET v_data = p_data, v_version = l.fence, v_till = IF(p_ttl > 0, v_now + p_ttl * 1000, NULL);
            REPLACE INTO holdfast_cell VALUES (l.id, v_data, v_version, v_till);
        END IF;
        CALL holdfast_save(l, v_now);
    END IF;
    COMMIT;
    SELECT v_rc, v_version, COALESCE(v_data, ''), COALESCE((v_till - v_now + 999) DIV 1000, -1);
END
$$

-- sweep: removes lines that nobody has used for ten minutes, some hundred at a time. Answers how many. Whoever
-- is in such a line is dead, or renews without touching it: then it is looked at again in ten minutes.
CREATE OR REPLACE PROCEDURE holdfast_sweep(p_idle BIGINT) SQL SECURITY INVOKER
BEGIN
    DECLARE l ROW TYPE OF holdfast_line;
    DECLARE v_now BIGINT;
    DECLARE v_count BIGINT DEFAULT 0;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    SET @holdfast_news = '', v_now = CLOCK;
    FOR i IN (SELECT x.id FROM holdfast_line x WHERE x.touched < v_now - p_idle * 1000 AND NOT EXISTS
            (SELECT 1 FROM holdfast_cell c WHERE c.line = x.id AND (c.till IS NULL OR c.till > v_now)) LIMIT 200) DO
        START TRANSACTION;
        SET l.id = NULL;
        SELECT * INTO l FROM holdfast_line x WHERE x.id = i.id AND x.touched < v_now - p_idle * 1000
            FOR UPDATE SKIP LOCKED;
        -- the condition is tested again if a renewal has the row: see above
        DELETE FROM holdfast_ticket WHERE line = l.id AND state = 1 AND expiry <= v_now;
        IF EXISTS (SELECT 1 FROM holdfast_ticket t WHERE t.line = l.id AND t.state = 1)
                OR EXISTS (SELECT 1 FROM holdfast_crowd c WHERE c.line = l.id AND c.till > v_now)
                OR EXISTS (SELECT 1 FROM holdfast_cell c WHERE c.line = l.id AND (c.till IS NULL OR c.till > v_now)) THEN
            CALL holdfast_admit(l, v_now, 1, '');
            CALL holdfast_save(l, v_now);
        ELSEIF l.id IS NOT NULL THEN
            UPDATE holdfast_mark m SET fence = GREATEST(m.fence, l.fence)
                WHERE m.bucket = CRC32(CONCAT(l.ns, X'00', l.name)) % 1024;
            DELETE FROM holdfast_ticket WHERE line = l.id;
            DELETE FROM holdfast_crowd WHERE line = l.id;
            DELETE FROM holdfast_revoked WHERE line = l.id;
            DELETE FROM holdfast_cell WHERE line = l.id;
            DELETE FROM holdfast_line WHERE id = l.id;
            SET v_count = v_count + 1;
        END IF;
        COMMIT;
    END FOR;
    SELECT v_count, @holdfast_news;
END
$$
INSERT IGNORE INTO holdfast_format VALUES (1)
$$
SET sql_mode = @holdfast_mode
$$
