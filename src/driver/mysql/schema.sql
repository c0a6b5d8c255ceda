DELIMITER $$
-- The schema of holdfast in MariaDB: tables, and one procedure per verb, in the current database. holdfast runs this
-- itself when a client finds none; 'holdfast schema' prints it for an administrator. It can be run again.
--
--   holdfast_line     all that is kept of one name: kind, capacity, sums of its tickets, last fence; folded tickets
--   holdfast_ticket   one place in a line: state 0 waits, 1 holds; flags 1 revoked (ends at its expiry), 2 kept
--   holdfast_crowd    the waiting tickets of one client, line and ttl: they share one expiry
--   holdfast_revoked  tickets that were taken out at once (kind x), marked (m), or let in by that (l): their owners look here
--   holdfast_cell     one small record beside a line
--   holdfast_mark     per bucket of names: the greatest fence of what was removed
--   holdfast_lease    mode=optimistic: all that is kept of one name
--   holdfast_mutex    mode=pessimistic: the row that is locked
--   holdfast_session  mode=named: which ticket a session is for; never committed
--
-- What serialises a line. Every procedure that changes a line locks its row first (SELECT ... FOR UPDATE) and reads
-- tickets only after that. In READ COMMITTED, which a client sets, each statement has a snapshot of its own, taken
-- after the lock was granted; in REPEATABLE READ the snapshot is taken by the first plain SELECT, which also comes
-- after the lock: either sees all that the owner of the lock before us committed. (A SELECT inside IF or SET is a locking
-- one: where nothing shall be locked it is SELECT ... INTO.) Renewing changes no ticket but
-- one's own, and takes no line, unless the hold is folded: it locks the ticket's row, as the removal of expired tickets does; whichever comes
-- second sees the outcome of the first (the row is gone, or its expiry has moved) and tests its condition again.
--
-- Folded holds. A hold that has all of its line, as nearly every one has, needs no row of its own: it stands in the
-- row of the line, if token is not empty. Then n = 1, total = cap, no ticket of state 1 is in the other table, and fence,
-- expiry and weight of the hold are fence, soonest and total of the line. To take a free line and to give it back is then
-- an UPDATE of one row, which needs no procedure. Its condition names columns of this row only: it is tested when the
-- row is locked, and whoever comes second sees what the first one left. These two statements are in short.c; a client
-- whose statement finds no such row calls holdfast_join or holdfast_leave. The only ticket that waits, of another client and
-- for all of the line, is folded too, behind a folded hold (w_token is not empty: then nw = 1, and its number is seq; it
-- is in no crowd, and w_till is its expiry). So to hand on to it is an UPDATE of one row, too. Three procedures know of
-- folded tickets: join, leave and await. Every other one that locks a line unfolds it first (holdfast_unfold), in the same
-- transaction: the tickets get their rows, with nothing changed. Nothing folds a ticket again but the grant to it.
--
-- A transaction is one call of a procedure, or one such statement: a crash leaves a line as before or after. Whatever fails in a procedure
-- rolls it back before the error is told. KILL QUERY passes that by: then the client rolls back, and
-- idle_transaction_timeout does if the client is frozen at this moment.
--
-- Invariants (a folded hold counts as a ticket of state 1, who waits behind it as one of state 0): line.n, line.nw and line.total count the tickets of state 1, of state 0, and the weights of state 1;
-- total <= cap; line.soonest is not later than any expiry of state 1 (n > 0); line.head is not greater than the number
-- of any ticket of state 0. (The server finds entries of an index that are deleted until it has purged them: whoever looks
-- for the first of the queue begins at head.)
--
-- Times are microseconds since 1970 by the server's clock. CLOCK is the time at which its statement began: it stands in a
-- statement of its own, after the one that waited for the lock. It does not depend on the time zone of a session.
-- ttl and keep are ms. A grant copies the crowd's expiry and moves nothing (G1). A fence is greater than the line's last
-- one and than the clock was (G2). A line goes ten minutes after its last use, by holdfast_sweep, which first raises the
-- mark of its bucket; a new line reads that mark under a lock.
--
-- Wakes. @holdfast_client is the client of a session. What a call means for other tickets of the same client stands in
-- its answer (@holdfast_news: see holdfast_tell). Other clients are woken by user locks: if @holdfast_wake is 1 the
-- session owns a user lock for each of its tickets that another client may wait for, and gives it back when the ticket
-- leaves, after the commit. Who waits behind a ticket of another client waits for that lock on another session
-- (holdfast_await). A lock that is free is only ever a reason to look: whether a place is free is decided by the tables,
-- by rows and times alone, and a live ticket may have none. That a session lives is told by its lock hf_s_CLIENT.
--
-- crash=fast (p_flags 4 of a join; crash.c has the client's half, and the argument). Such a ticket has the number of its
-- session, if that session owns hf_s_CLIENT, else 0, as all others. If a holder has one, and that lock belongs to no session
-- or to another one, the holder's session is gone. Whoever finds that (join, wait: holdfast_orphans) writes -1 and lets
-- the hold end in 300 ms, if it does not end sooner: no expiry is ever moved to a later time by it, and it goes as every
-- other one whose time is over. A renewal revives none whose session is not its own. Its client may take it back only if
-- it does not know that it was granted (a join that is repeated, a wait): these write the number of their own session.
-- Only their answers say that such a ticket holds; others tell it to look. line.fast: there may be such tickets.
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
    touched BIGINT NOT NULL DEFAULT 0, head BIGINT NOT NULL DEFAULT 0, fast BIGINT NOT NULL DEFAULT 0,
    crc BIGINT AS (CRC32(CONCAT(ns, X'00', name))) PERSISTENT, token VARBINARY(16) NOT NULL DEFAULT '', number BIGINT NOT NULL DEFAULT 0, joined BIGINT NOT NULL DEFAULT 0,
    granted BIGINT NOT NULL DEFAULT 0, ttl BIGINT NOT NULL DEFAULT 0, client BINARY(8) NOT NULL DEFAULT '',
    process BIGINT NOT NULL DEFAULT 0, owner BIGINT NOT NULL DEFAULT 0, pid BIGINT NOT NULL DEFAULT 0,
    host VARBINARY(255) NOT NULL DEFAULT '', note VARBINARY(1024) NOT NULL DEFAULT '',
    hints VARBINARY(8300) NOT NULL DEFAULT '',
    w_token VARBINARY(16) NOT NULL DEFAULT '', w_till BIGINT NOT NULL DEFAULT 0, w_joined BIGINT NOT NULL DEFAULT 0,
    w_ttl BIGINT NOT NULL DEFAULT 0, w_client BINARY(8) NOT NULL DEFAULT '', w_process BIGINT NOT NULL DEFAULT 0,
    w_owner BIGINT NOT NULL DEFAULT 0, w_pid BIGINT NOT NULL DEFAULT 0, w_host VARBINARY(255) NOT NULL DEFAULT '',
    w_note VARBINARY(1024) NOT NULL DEFAULT '', w_hints VARBINARY(8300) NOT NULL DEFAULT '',
    UNIQUE (ns, name), KEY crc (crc)) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
$$
CREATE TABLE IF NOT EXISTS holdfast_ticket (
    line BIGINT, token BINARY(16), state BIGINT NOT NULL, flags BIGINT NOT NULL DEFAULT 0, weight BIGINT NOT NULL,
    number BIGINT NOT NULL DEFAULT 0, fence BIGINT NOT NULL DEFAULT 0, expiry BIGINT NOT NULL DEFAULT 0,
    joined BIGINT NOT NULL, granted BIGINT NOT NULL DEFAULT 0, ttl BIGINT NOT NULL, client BINARY(8) NOT NULL,
    process BIGINT NOT NULL, owner BIGINT NOT NULL, pid BIGINT NOT NULL, host VARBINARY(255) NOT NULL,
    note VARBINARY(1024) NOT NULL, hints VARBINARY(8300) NOT NULL, sent BIGINT NOT NULL DEFAULT 0,
    session BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (line, token), KEY queue (line, state, number)) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
$$
-- What version 1 had not.
BEGIN NOT ATOMIC
    IF (SELECT COUNT(*) FROM information_schema.columns c WHERE c.table_schema = DATABASE()
            AND (c.table_name = 'holdfast_line' AND c.column_name = 'w_token'
            OR c.table_name = 'holdfast_ticket' AND c.column_name = 'session')) < 2 THEN
        ALTER TABLE holdfast_line ADD COLUMN IF NOT EXISTS head BIGINT NOT NULL DEFAULT 0,
            ADD COLUMN IF NOT EXISTS fast BIGINT NOT NULL DEFAULT 0, ADD COLUMN IF NOT EXISTS crc BIGINT AS (CRC32(CONCAT(ns, X'00', name))) PERSISTENT,
            ADD COLUMN IF NOT EXISTS token VARBINARY(16) NOT NULL DEFAULT '', ADD COLUMN IF NOT EXISTS number BIGINT NOT NULL DEFAULT 0,
            ADD COLUMN IF NOT EXISTS joined BIGINT NOT NULL DEFAULT 0, ADD COLUMN IF NOT EXISTS granted BIGINT NOT NULL DEFAULT 0,
            ADD COLUMN IF NOT EXISTS ttl BIGINT NOT NULL DEFAULT 0, ADD COLUMN IF NOT EXISTS client BINARY(8) NOT NULL DEFAULT '',
            ADD COLUMN IF NOT EXISTS process BIGINT NOT NULL DEFAULT 0, ADD COLUMN IF NOT EXISTS owner BIGINT NOT NULL DEFAULT 0,
            ADD COLUMN IF NOT EXISTS pid BIGINT NOT NULL DEFAULT 0, ADD COLUMN IF NOT EXISTS host VARBINARY(255) NOT NULL DEFAULT '',
            ADD COLUMN IF NOT EXISTS note VARBINARY(1024) NOT NULL DEFAULT '',
            ADD COLUMN IF NOT EXISTS hints VARBINARY(8300) NOT NULL DEFAULT '', ADD KEY IF NOT EXISTS crc (crc),
            ADD COLUMN IF NOT EXISTS w_token VARBINARY(16) NOT NULL DEFAULT '', ADD COLUMN IF NOT EXISTS w_till BIGINT NOT NULL DEFAULT 0,
            ADD COLUMN IF NOT EXISTS w_joined BIGINT NOT NULL DEFAULT 0, ADD COLUMN IF NOT EXISTS w_ttl BIGINT NOT NULL DEFAULT 0,
            ADD COLUMN IF NOT EXISTS w_client BINARY(8) NOT NULL DEFAULT '', ADD COLUMN IF NOT EXISTS w_process BIGINT NOT NULL DEFAULT 0,
            ADD COLUMN IF NOT EXISTS w_owner BIGINT NOT NULL DEFAULT 0, ADD COLUMN IF NOT EXISTS w_pid BIGINT NOT NULL DEFAULT 0,
            ADD COLUMN IF NOT EXISTS w_host VARBINARY(255) NOT NULL DEFAULT '',
            ADD COLUMN IF NOT EXISTS w_note VARBINARY(1024) NOT NULL DEFAULT '',
            ADD COLUMN IF NOT EXISTS w_hints VARBINARY(8300) NOT NULL DEFAULT '';
        ALTER TABLE holdfast_ticket ADD COLUMN IF NOT EXISTS session BIGINT NOT NULL DEFAULT 0;
    END IF;
END
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
CREATE TABLE IF NOT EXISTS holdfast_lease (
    id BIGINT AUTO_INCREMENT PRIMARY KEY,
    ns VARBINARY(255) NOT NULL, name VARBINARY(512) NOT NULL, version BIGINT NOT NULL,
    token VARBINARY(16) NOT NULL DEFAULT '', expiry BIGINT NOT NULL DEFAULT 0, granted BIGINT NOT NULL DEFAULT 0,
    sent BIGINT NOT NULL DEFAULT 0, touched BIGINT NOT NULL, process BIGINT NOT NULL DEFAULT 0,
    owner BIGINT NOT NULL DEFAULT 0, pid BIGINT NOT NULL DEFAULT 0, host VARBINARY(255) NOT NULL DEFAULT '',
    note VARBINARY(1024) NOT NULL DEFAULT '', UNIQUE (ns, name)) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
$$
CREATE TABLE IF NOT EXISTS holdfast_mutex (
    ns VARBINARY(255), name VARBINARY(512), version BIGINT NOT NULL, session BIGINT NOT NULL DEFAULT 0,
    label VARBINARY(64) NOT NULL DEFAULT '', since BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (ns, name)) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
$$
CREATE TABLE IF NOT EXISTS holdfast_session (
    id BIGINT PRIMARY KEY, label VARBINARY(64) NOT NULL, since BIGINT NOT NULL) ENGINE=InnoDB
$$
INSERT IGNORE INTO holdfast_mark SELECT seq, 0 FROM seq_0_to_1023
$$

-- Of a line that is locked: its folded tickets get rows of their own.
CREATE OR REPLACE PROCEDURE holdfast_unfold(INOUT l ROW TYPE OF holdfast_line) SQL SECURITY INVOKER
BEGIN
    IF l.token <> '' THEN
        INSERT INTO holdfast_ticket VALUES (l.id, l.token, 1, 0, l.total, l.number, l.fence, l.soonest, l.joined,
            l.granted, l.ttl, l.client, l.process, l.owner, l.pid, l.host, l.note, l.hints, 0, 0);
        IF l.w_token <> '' THEN
            INSERT INTO holdfast_ticket VALUES (l.id, l.w_token, 0, 0, l.cap, l.seq, 0, 0, l.w_joined, 0, l.w_ttl, l.w_client,
                l.w_process, l.w_owner, l.w_pid, l.w_host, l.w_note, l.w_hints, 0, 0);
            REPLACE INTO holdfast_crowd VALUES (l.id, l.w_client, l.w_ttl, l.w_till, 1);
        END IF;
        UPDATE holdfast_line x SET token = '', w_token = '' WHERE x.id = l.id;
        SET l.token = '', l.w_token = '';
    END IF;
END
$$

-- The row of a line, locked and unfolded; id NULL: there is none, and none was to be made. The mark is read by a statement
-- after the one that made the row, and locked: whoever removed the line before has committed by then.
CREATE OR REPLACE PROCEDURE holdfast_line_of(p_ns VARBINARY(255), p_name VARBINARY(512), p_make BIGINT,
    OUT l ROW TYPE OF holdfast_line) SQL SECURITY INVOKER
BEGIN
    SELECT * INTO l FROM holdfast_line x WHERE x.ns = p_ns AND x.name = p_name FOR UPDATE;
    WHILE l.id IS NULL AND p_make > 0 DO
        INSERT INTO holdfast_line (ns, name, touched) VALUES (p_ns, p_name, CLOCK)
            ON DUPLICATE KEY UPDATE ns = p_ns;
        IF ROW_COUNT() = 1 THEN
            UPDATE holdfast_line x, holdfast_mark m SET x.fence = m.fence
                WHERE x.ns = p_ns AND x.name = p_name AND m.bucket = CRC32(CONCAT(p_ns, X'00', p_name)) % 1024;
        END IF;
        SELECT * INTO l FROM holdfast_line x WHERE x.ns = p_ns AND x.name = p_name FOR UPDATE;
    END WHILE;
    IF l.token <> '' THEN
        CALL holdfast_unfold(l);
    END IF;
END
$$

-- Of a line that is locked.
CREATE OR REPLACE PROCEDURE holdfast_save(l ROW TYPE OF holdfast_line, p_now BIGINT) SQL SECURITY INVOKER
BEGIN
    UPDATE holdfast_line x SET kind = l.kind, cap = l.cap, total = l.total, n = l.n, nw = l.nw, seq = l.seq,
        head = l.head, fence = l.fence, soonest = l.soonest, touched = p_now WHERE x.id = l.id;
END
$$

-- For the answer, if the ticket is of the same client: a letter, and what it is about, a line each.
--   g TOKEN FENCE TILL   it holds; x TOKEN: it was revoked; m TOKEN: marked; l TOKEN: it should look
--   w TOKEN [LOCK] LINE SINCE   it waits, for a lock of another session, or for something that must be looked at; SINCE
--   is the line's last fence then: whoever gets in later has a greater one, whatever the clock says
CREATE OR REPLACE PROCEDURE holdfast_tell(p_client BINARY(8), p_kind VARCHAR(1), p_token BINARY(16), p_rest VARCHAR(80))
SQL SECURITY INVOKER
BEGIN
    IF p_client = @holdfast_client THEN
        SET @holdfast_news = CONCAT(@holdfast_news, p_kind, LOWER(HEX(p_token)), p_rest, '\n');
    END IF;
END
$$

-- The user lock of a ticket of this session. It is taken before others can see the ticket. Another session may own it:
-- the one that this client had before, until the server has ended it. p_must: then this call is undone, and sent again.
-- Renewals and looks go on without it: who waits for such a ticket looks from time to time.
CREATE OR REPLACE PROCEDURE holdfast_own(p_token BINARY(16), p_must BIGINT) SQL SECURITY INVOKER
BEGIN
    IF @holdfast_wake = 1 AND NOT IS_USED_LOCK(CONCAT('hf_', HEX(p_token))) <=> CONNECTION_ID()
            AND NOT GET_LOCK(CONCAT('hf_', HEX(p_token)), 0) <=> 1 AND p_must > 0 THEN
        SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1205, MESSAGE_TEXT = 'another session owns the lock of this ticket';
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

-- A waiting ticket of this client has left from p_number: whoever is behind it waits for the one in front of it now, which
-- may have given its lock back (see join).
CREATE OR REPLACE PROCEDURE holdfast_own_before(p_line BIGINT, p_number BIGINT) SQL SECURITY INVOKER
BEGIN
    DECLARE v_token BINARY(16);
    DECLARE v_client BINARY(8);
    SELECT x.token, x.client INTO v_token, v_client FROM holdfast_ticket x
        WHERE x.line = p_line AND x.state = 0 AND x.number < p_number ORDER BY x.number DESC LIMIT 1;
    IF v_token IS NULL THEN
        SELECT x.token, x.client INTO v_token, v_client FROM holdfast_ticket x
            WHERE x.line = p_line AND x.state = 1 ORDER BY x.number DESC LIMIT 1;
    END IF;
    IF v_client = @holdfast_client THEN
        CALL holdfast_own(v_token, 0);
    END IF;
END
$$

CREATE OR REPLACE PROCEDURE holdfast_dequeue(p_line BIGINT, p_client BINARY(8), p_ttl BIGINT) SQL SECURITY INVOKER
BEGIN
    UPDATE holdfast_crowd c SET many = c.many - 1 WHERE c.line = p_line AND c.client = p_client AND c.ttl = p_ttl;
    DELETE FROM holdfast_crowd WHERE line = p_line AND client = p_client AND ttl = p_ttl AND many <= 0;
END
$$

-- The number of this session, if it is proved to live by its lock; else 0.
CREATE OR REPLACE PROCEDURE holdfast_session_of(p_client BINARY(8), OUT p_session BIGINT) SQL SECURITY INVOKER
BEGIN
    SET p_session = IF(IS_USED_LOCK(CONCAT('hf_s_', HEX(p_client))) <=> CONNECTION_ID(), CONNECTION_ID(), 0);
END
$$

-- Of a line that is locked and unfolded: holders whose session is gone end soon.
CREATE OR REPLACE PROCEDURE holdfast_orphans(INOUT l ROW TYPE OF holdfast_line, p_now BIGINT) SQL SECURITY INVOKER
BEGIN
    UPDATE holdfast_ticket x SET session = -1, expiry = LEAST(x.expiry, p_now + 300000)
        WHERE x.line = l.id AND x.state = 1 AND x.session > 0
        AND NOT IS_USED_LOCK(CONCAT('hf_s_', HEX(x.client))) <=> x.session;
    IF ROW_COUNT() > 0 THEN
        SET l.soonest = LEAST(l.soonest, p_now + 300000);
        UPDATE holdfast_line x SET soonest = l.soonest WHERE x.id = l.id;
    END IF;
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
    DECLARE v_weight, v_ttl, v_number, v_session, v_till, v_many, v_n, v_total, v_soonest BIGINT;
    IF l.n > 0 AND p_now >= l.soonest THEN
        DELETE FROM holdfast_ticket WHERE line = l.id AND state = 1 AND expiry <= p_now;
        SELECT COUNT(*), COALESCE(SUM(x.weight), 0), COALESCE(MIN(x.expiry), 0) INTO v_n, v_total, v_soonest
            FROM holdfast_ticket x WHERE x.line = l.id AND x.state = 1;
        SET l.n = v_n, l.total = v_total, l.soonest = v_soonest;
    END IF;
    queue: WHILE l.nw > 0 DO
        SET v_token = NULL, v_till = NULL;
        SELECT x.token, x.client, x.weight, x.ttl, x.number, x.session, c.till, c.many
            INTO v_token, v_client, v_weight, v_ttl, v_number, v_session, v_till, v_many FROM holdfast_ticket x FORCE INDEX (queue)
            LEFT JOIN holdfast_crowd c ON c.line = x.line AND c.client = x.client AND c.ttl = x.ttl
            WHERE x.line = l.id AND x.state = 0 AND x.number >= l.head ORDER BY x.number LIMIT 1;
        IF v_token IS NULL THEN
            SET l.nw = 0;
            LEAVE queue;
        END IF;
        SET l.head = v_number;
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
        IF v_many > 1 THEN
            UPDATE holdfast_crowd c SET many = c.many - 1
                WHERE c.line = l.id AND c.client = v_client AND c.ttl = v_ttl;
        ELSE
            DELETE FROM holdfast_crowd WHERE line = l.id AND client = v_client AND ttl = v_ttl;
        END IF;
        SET l.soonest = IF(l.n = 0, v_till, LEAST(l.soonest, v_till));
        SET l.n = l.n + 1, l.nw = l.nw - 1, l.total = l.total + v_weight, p_headed = 1;
        IF LOCATE(v_token, p_named) = 0 AND v_session = 0 THEN
            CALL holdfast_tell(v_client, 'g', v_token, CONCAT(l.fence, ' ', v_till));
        ELSEIF LOCATE(v_token, p_named) = 0 THEN -- which session has it now is written by a wait
            CALL holdfast_tell(v_client, 'l', v_token, '');
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
        IF l.kind = 0 AND l.token <> '' THEN
            SET v_token = l.token, v_client = l.client;
        ELSEIF l.kind = 0 THEN
            SELECT x.token, x.client INTO v_token, v_client FROM holdfast_ticket x
                WHERE x.line = l.id AND x.state = 1 ORDER BY x.weight DESC, x.expiry DESC LIMIT 1;
        END IF;
    END IF;
    SET p_recheck = COALESCE(GREATEST(v_till - p_now + 999, 0) DIV 1000, -1);
    IF @holdfast_wake = 1 AND NOT v_client <=> @holdfast_client THEN
        CALL holdfast_tell(@holdfast_client, 'w', p_token, CONCAT(
            IF(IS_USED_LOCK(CONCAT('hf_', HEX(v_token))) IS NULL, '', LOWER(HEX(v_token))), ' ', l.id, ' ', l.fence));
    END IF;
END
$$

-- The same for whoever is the first of this client now.
CREATE OR REPLACE PROCEDURE holdfast_next(l ROW TYPE OF holdfast_line, p_now BIGINT) SQL SECURITY INVOKER
BEGIN
    DECLARE v_token BINARY(16);
    DECLARE v_number, v_weight, v_recheck BIGINT;
    IF l.w_token <> '' THEN
        IF l.w_client = @holdfast_client THEN
            CALL holdfast_front(l, p_now, l.w_token, l.seq, l.cap, v_recheck);
        END IF;
    ELSEIF @holdfast_wake = 1 AND l.nw > 0
            AND EXISTS (SELECT 1 FROM holdfast_crowd c WHERE c.line = l.id AND c.client = @holdfast_client) THEN
        SELECT x.token, x.number, x.weight INTO v_token, v_number, v_weight FROM holdfast_ticket x
            WHERE x.line = l.id AND x.state = 0 AND x.number >= l.head AND x.client = @holdfast_client
            ORDER BY x.number LIMIT 1;
        IF v_token IS NOT NULL THEN
            CALL holdfast_front(l, p_now, v_token, v_number, v_weight, v_recheck);
        END IF;
    END IF;
END
$$

-- The same without the lock of the line. p_since as in holdfast_await: not the fence that is read here, because whoever got
-- in since then may not have been told.
CREATE OR REPLACE PROCEDURE holdfast_next_of(p_line BIGINT, p_since BIGINT) SQL SECURITY INVOKER
BEGIN
    DECLARE l ROW TYPE OF holdfast_line;
    SELECT * INTO l FROM holdfast_line x WHERE x.id = p_line;
    SET l.fence = p_since;
    CALL holdfast_next(l, 0);
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
    DECLARE v_session BIGINT DEFAULT 0;
    DECLARE v_before BINARY(16);
    DECLARE v_answer TEXT DEFAULT '2';
    CALL holdfast_line_of(p_ns, p_name, 1, l);
    SET v_now = CLOCK;
    SET v_end = v_now + p_ttl * 1000;
    IF (p_flags & 4) > 0 THEN
        CALL holdfast_session_of(p_client, v_session);
    END IF;
    IF l.fast > 0 AND l.n > 0 THEN
        CALL holdfast_orphans(l, v_now);
    END IF;
    body: BEGIN
        IF (l.n > 0 AND v_now >= l.soonest) OR (l.nw > 0 AND l.total + p_weight <= l.cap) THEN
            CALL holdfast_admit(l, v_now, 0, p_token); -- those in front may have died
            UPDATE holdfast_line x SET kind = l.kind, cap = l.cap, total = l.total, n = l.n, nw = l.nw, seq = l.seq, head = l.head, fence = l.fence,
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
            UPDATE holdfast_ticket x SET session = v_session WHERE x.line = l.id AND x.token = p_token AND x.session <> 0;
            CALL holdfast_own(p_token, 1);
            SET v_answer = CONCAT_WS(',', 0, v_fence, 0, 0, 0, l.id);
            LEAVE body;
        ELSEIF v_state = 1 AND v_flags >= 2 THEN -- left already: a late one of these
            LEAVE body;
        ELSEIF v_state = 1 THEN -- revoked before its owner knew of it: its time may not count anew
            DELETE FROM holdfast_ticket WHERE line = l.id AND token = p_token;
            SET l.n = l.n - 1, l.total = l.total - v_weight, v_answer = '3';
            CALL holdfast_admit(l, v_now, 1, '');
            UPDATE holdfast_line x SET kind = l.kind, cap = l.cap, total = l.total, n = l.n, nw = l.nw, seq = l.seq, head = l.head, fence = l.fence,
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
            IF v_session > 0 AND l.fast = 0 THEN
                UPDATE holdfast_line x SET fast = 1 WHERE x.id = l.id;
            END IF;
            IF l.total + p_weight <= l.cap AND (l.nw = 0 OR (p_flags & 2) > 0) THEN
                SET l.fence = GREATEST(l.fence + 1, v_now), l.soonest = IF(l.n = 0, v_end, LEAST(l.soonest, v_end));
                SET l.n = l.n + 1, l.total = l.total + p_weight;
                CALL holdfast_own(p_token, 1);
                IF l.n = 1 AND l.nw = 0 AND p_weight = l.cap AND v_session = 0 THEN
                    UPDATE holdfast_line x SET token = p_token, number = 0, joined = v_now, granted = v_now, ttl = p_ttl,
                        client = p_client, process = p_process, owner = p_owner, pid = p_pid, host = p_host, note = p_note,
                        hints = p_hints WHERE x.id = l.id;
                ELSE
                    INSERT INTO holdfast_ticket VALUES (l.id, p_token, 1, 0, p_weight, 0, l.fence, v_end, v_now, v_now,
                        p_ttl, p_client, p_process, p_owner, p_pid, p_host, p_note, p_hints, 0, v_session);
                END IF;
                UPDATE holdfast_line x SET kind = l.kind, cap = l.cap, total = l.total, n = l.n, nw = l.nw, seq = l.seq, head = l.head, fence = l.fence,
            soonest = l.soonest, touched = v_now WHERE x.id = l.id;
                SET v_answer = CONCAT_WS(',', 0, l.fence, 0, 0, 0, l.id);
                LEAVE body;
            END IF;
            IF (p_flags & 1) > 0 THEN
                LEAVE body;
            END IF;
            SET l.seq = l.seq + 1, l.nw = l.nw + 1, v_number = l.seq, v_place = l.nw, v_weight = p_weight;
            INSERT INTO holdfast_ticket VALUES (l.id, p_token, 0, 0, p_weight, l.seq, 0, 0, v_now, 0, p_ttl, p_client,
                p_process, p_owner, p_pid, p_host, p_note, p_hints, 0, v_session);
        ELSE
            SELECT COUNT(*) INTO v_place FROM holdfast_ticket x
                WHERE x.line = l.id AND x.state = 0 AND x.number <= v_number;
        END IF;
        IF l.kind = 0 THEN
            CALL holdfast_own(p_token, 1);
            -- Whoever comes behind an exclusive ticket waits for that one, never for the one in front of it. The server
            -- goes through all locks of a session in every statement: with one for each of many waiters it would crawl.
            IF v_state IS NULL AND p_weight = l.cap THEN
                SELECT IF(x.client = p_client, x.token, NULL) INTO v_before FROM holdfast_ticket x
                    WHERE x.line = l.id AND x.state = 0 AND x.number < v_number ORDER BY x.number DESC LIMIT 1;
                IF v_before IS NOT NULL THEN
                    CALL holdfast_disown(v_before);
                END IF;
            END IF;
        END IF;
        INSERT INTO holdfast_crowd VALUES (l.id, p_client, p_ttl, v_end, 1)
            ON DUPLICATE KEY UPDATE till = v_end, many = many + IF(v_state IS NULL, 1, 0);
        SELECT c.many INTO v_many FROM holdfast_crowd c WHERE c.line = l.id AND c.client = p_client AND c.ttl = p_ttl;
        UPDATE holdfast_line x SET kind = l.kind, cap = l.cap, total = l.total, n = l.n, nw = l.nw, seq = l.seq, head = l.head, fence = l.fence,
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

-- join: stand in line, or take the place if there is room (G1, G2, G3, G7). p_flags: 1 try, 2 barge, 4 crash=fast.
-- Answers 0, fence, 0, 0, 0, line: it holds; 1, crowd's till, recheck, number, position, line: it waits;
-- 2: busy, and not in line; 3: revoked; 4, kind, capacity: another kind of line.
-- Repeatable: a token that is in line answers its place, and its owner's time counts anew.
-- The short ways: nobody is in this line, or one that has all of it, and nobody waits: they call no other procedure, which
-- is dear. In such a line no ticket has a row of its own: so this token is not in it.
CREATE OR REPLACE PROCEDURE holdfast_join(p_ns VARBINARY(255), p_name VARBINARY(512), p_token BINARY(16), p_kind BIGINT,
    p_cap BIGINT, p_weight BIGINT, p_ttl BIGINT, p_flags BIGINT, p_client BINARY(8), p_process BIGINT, p_owner BIGINT,
    p_pid BIGINT, p_host VARBINARY(255), p_note VARBINARY(1024), p_hints VARBINARY(8300)) SQL SECURITY INVOKER
BEGIN
    DECLARE v_now, v_line, v_n, v_nw, v_fence, v_kind, v_cap, v_soonest, v_seq BIGINT;
    DECLARE v_token VARBINARY(16);
    DECLARE v_client BINARY(8);
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    SET @holdfast_news = '';
    START TRANSACTION;
    SELECT x.id, x.n, x.nw, x.fence, x.kind, x.cap, x.soonest, x.seq, x.token, x.client
        INTO v_line, v_n, v_nw, v_fence, v_kind, v_cap, v_soonest, v_seq, v_token, v_client FROM holdfast_line x
        WHERE x.ns = p_ns AND x.name = p_name FOR UPDATE;
    SET v_now = CLOCK;
    IF v_n + v_nw = 0 AND p_weight = p_cap AND (p_flags & 4) = 0 THEN
        SET v_fence = GREATEST(v_fence + 1, v_now);
        IF @holdfast_wake = 1 AND NOT IS_USED_LOCK(CONCAT('hf_', HEX(p_token))) <=> CONNECTION_ID()
                AND NOT GET_LOCK(CONCAT('hf_', HEX(p_token)), 0) <=> 1 THEN
            CALL holdfast_own(p_token, 1); -- says why
        END IF;
        UPDATE holdfast_line x SET kind = p_kind, cap = p_cap, n = 1, total = p_weight, fence = v_fence,
            soonest = v_now + p_ttl * 1000, touched = v_now, token = p_token, number = 0, joined = v_now, granted = v_now,
            ttl = p_ttl, client = p_client, process = p_process, owner = p_owner, pid = p_pid, host = p_host,
            note = p_note, hints = p_hints WHERE x.id = v_line;
        COMMIT;
        SELECT CONCAT_WS(',', 0, v_fence, 0, 0, 0, v_line), '';
    ELSEIF v_nw = 0 AND v_token NOT IN ('', p_token) AND v_soonest > v_now AND v_kind = 0 AND p_kind = 0
            AND v_cap = p_cap AND p_weight = p_cap AND (p_flags & 4) = 0 THEN
        IF (p_flags & 1) > 0 THEN
            COMMIT;
            SELECT 2, '';
        ELSE
            IF @holdfast_wake = 1 AND NOT IS_USED_LOCK(CONCAT('hf_', HEX(p_token))) <=> CONNECTION_ID()
                    AND NOT GET_LOCK(CONCAT('hf_', HEX(p_token)), 0) <=> 1 THEN
                CALL holdfast_own(p_token, 1);
            END IF;
            IF v_client <> p_client THEN
                UPDATE holdfast_line x SET nw = 1, seq = v_seq + 1, head = v_seq + 1, touched = v_now, w_token = p_token,
                    w_till = v_now + p_ttl * 1000, w_joined = v_now, w_ttl = p_ttl, w_client = p_client,
                    w_process = p_process, w_owner = p_owner, w_pid = p_pid, w_host = p_host, w_note = p_note,
                    w_hints = p_hints WHERE x.id = v_line;
            ELSE
                INSERT INTO holdfast_ticket VALUES (v_line, p_token, 0, 0, p_weight, v_seq + 1, 0, 0, v_now, 0, p_ttl,
                    p_client, p_process, p_owner, p_pid, p_host, p_note, p_hints, 0, 0);
                REPLACE INTO holdfast_crowd VALUES (v_line, p_client, p_ttl, v_now + p_ttl * 1000, 1);
                UPDATE holdfast_line x SET nw = 1, seq = v_seq + 1, head = v_seq + 1, touched = v_now WHERE x.id = v_line;
            END IF;
            IF @holdfast_wake = 1 AND v_client <> p_client THEN -- while it cannot leave
                SET @holdfast_news = CONCAT('w', LOWER(HEX(p_token)),
                    IF(IS_USED_LOCK(CONCAT('hf_', HEX(v_token))) IS NULL, '', LOWER(HEX(v_token))), ' ', v_line, ' ', v_fence,
                    '\n');
            END IF;
            COMMIT;
            SELECT CONCAT_WS(',', 1, v_now + p_ttl * 1000, (v_soonest - v_now + 999) DIV 1000, v_seq + 1, 1, v_line),
                @holdfast_news;
        END IF;
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
    DECLARE v_place, v_last, v_at, v_first, v_session BIGINT DEFAULT 0;
    DECLARE v_recheck BIGINT DEFAULT -1;
    DECLARE v_token BINARY(16);
    DECLARE v_states TEXT DEFAULT '';
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    SET @holdfast_news = '';
    START TRANSACTION;
    SELECT * INTO l FROM holdfast_line x WHERE x.ns = p_ns AND x.name = p_name FOR UPDATE;
    CALL holdfast_unfold(l);
    SET v_now = CLOCK;
    SET v_end = v_now + p_ttl * 1000;
    IF l.id IS NOT NULL THEN
        UPDATE holdfast_crowd c SET till = v_end WHERE c.line = l.id AND c.client = p_client AND c.ttl = p_ttl;
        IF l.fast > 0 THEN
            CALL holdfast_session_of(p_client, v_session);
            UPDATE holdfast_ticket x SET session = v_session
                WHERE x.line = l.id AND x.state = 0 AND x.client = p_client AND x.session <> 0;
            CALL holdfast_orphans(l, v_now);
        END IF;
        CALL holdfast_admit(l, v_now, 0, p_tokens);
    END IF;
    WHILE v_at < LENGTH(p_tokens) DO
        SET v_token = SUBSTR(p_tokens, v_at + 1, 16), v_at = v_at + 16, v_said = 0, v_state = NULL;
        SELECT x.state, x.flags, x.weight, x.number, x.fence, x.expiry
            INTO v_state, v_flags, v_weight, v_number, v_fence, v_expiry
            FROM holdfast_ticket x WHERE x.line = l.id AND x.token = v_token;
        IF v_state = 1 AND v_flags = 0 AND v_expiry > v_now THEN
            -- this may come late, and its owner have renewed it for longer
            UPDATE holdfast_ticket x SET expiry = GREATEST(x.expiry, v_end), ttl = GREATEST(x.ttl, p_ttl),
                session = IF(x.session = 0, 0, v_session) WHERE x.line = l.id AND x.token = v_token;
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
            CALL holdfast_own(v_token, 0);
        END IF;
        SET v_states = CONCAT(v_states, ',', v_said);
    END WHILE;
    IF l.id IS NOT NULL THEN
        SELECT c.till, c.many INTO v_till, v_many FROM holdfast_crowd c
            WHERE c.line = l.id AND c.client = p_client AND c.ttl = p_ttl;
        UPDATE holdfast_line x SET kind = l.kind, cap = l.cap, total = l.total, n = l.n, nw = l.nw, seq = l.seq, head = l.head, fence = l.fence,
            soonest = l.soonest, touched = v_now WHERE x.id = l.id;
    END IF;
    COMMIT;
    SELECT CONCAT(COALESCE(v_till, 0), ',', COALESCE(v_many, 0), ',', v_recheck, v_states), @holdfast_news;
END
$$

-- await: on a session of its own: returns when nobody owns the user lock of p_front any more, or after p_seconds; then
-- says which tickets of the client have got in since the line's fence was p_since, and whom the first of those that wait waits for. The row of
-- the line is read first: mostly all of it stands there. Else who waits is read, and then who holds: whoever is let in
-- between is seen by the second read.
CREATE OR REPLACE PROCEDURE holdfast_await(p_client BINARY(8), p_front VARBINARY(16), p_line BIGINT, p_since BIGINT,
    p_seconds BIGINT) SQL SECURITY INVOKER
BEGIN
    DECLARE v_holds, v_waits BIGINT DEFAULT 0;
    DECLARE v_news LONGTEXT DEFAULT ''; -- thousands may get in at once
    SET @holdfast_client = p_client, @holdfast_wake = 1, @holdfast_news = '';
    IF GET_LOCK(CONCAT('hf_', HEX(p_front)), p_seconds) = 1 THEN
        DO RELEASE_LOCK(CONCAT('hf_', HEX(p_front)));
    END IF;
    SELECT IF(x.token <> '' AND x.client = p_client AND x.fence > p_since AND x.number > 0,
            CONCAT('g', LOWER(HEX(x.token)), x.fence, ' ', x.soonest, '\n'), ''), x.token = '' AND x.n > 0,
        x.nw > 0 AND (x.w_token = '' OR x.w_client = p_client)
        INTO v_news, v_holds, v_waits FROM holdfast_line x WHERE x.id = p_line;
    IF v_waits > 0 THEN
        CALL holdfast_next_of(p_line, p_since);
        SELECT IF(x.token <> '' AND x.client = p_client AND x.fence > p_since AND x.number > 0,
                CONCAT('g', LOWER(HEX(x.token)), x.fence, ' ', x.soonest, '\n'), ''), x.token = '' AND x.n > 0
            INTO v_news, v_holds FROM holdfast_line x WHERE x.id = p_line;
    END IF;
    IF v_holds > 0 THEN
        SELECT GROUP_CONCAT(IF(x.session = 0, 'g', 'l'), LOWER(HEX(x.token)),
                IF(x.session = 0, CONCAT(x.fence, ' ', x.expiry), ''), '\n' SEPARATOR '')
            INTO v_news FROM holdfast_ticket x WHERE x.line = p_line AND x.state = 1 AND x.client = p_client
            AND x.fence > p_since AND x.number > 0;
    END IF;
    SELECT 0, CONCAT(COALESCE(v_news, ''), @holdfast_news);
END
$$

-- Of a line that is locked: the hold ends by itself p_keep ms from now, and by nothing its owner does.
CREATE OR REPLACE PROCEDURE holdfast_last_for(l ROW TYPE OF holdfast_line, p_now BIGINT, p_token BINARY(16),
    p_flags BIGINT, p_keep BIGINT) SQL SECURITY INVOKER
BEGIN
    DECLARE v_token BINARY(16);
    DECLARE v_client BINARY(8);
    UPDATE holdfast_ticket x SET flags = p_flags, expiry = p_now + p_keep * 1000, session = 0
        WHERE x.line = l.id AND x.token = p_token;
    SET l.soonest = LEAST(l.soonest, p_now + p_keep * 1000);
    SELECT x.token, x.client INTO v_token, v_client FROM holdfast_ticket x
        WHERE x.line = l.id AND x.state = 0 AND x.number >= l.head ORDER BY x.number LIMIT 1; -- the head must learn when to look
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
    CALL holdfast_unfold(l);
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
            CALL holdfast_own_before(l.id, v_number);
        END IF;
        IF l.nw > 0 THEN
            CALL holdfast_admit(l, v_now, v_state = 0, '');
            CALL holdfast_next(l, v_now);
        END IF;
        UPDATE holdfast_line x SET kind = l.kind, cap = l.cap, total = l.total, n = l.n, nw = l.nw, seq = l.seq, head = l.head, fence = l.fence,
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

-- leave where not all are folded: one holds, and nobody waits, or the first that waits takes all of the line, and no other
-- ticket of this client is told of it. Nothing is changed before it is known that it is such a case.
CREATE OR REPLACE PROCEDURE holdfast_leave_some(p_ns VARBINARY(255), p_name VARBINARY(512), p_token BINARY(16), p_keep BIGINT)
SQL SECURITY INVOKER
BEGIN
    DECLARE v_line, v_n, v_nw, v_cap, v_fence, v_head, v_now, v_till, v_many, v_answer BIGINT;
    DECLARE v_weight, v_ttl, v_number, v_joined, v_process, v_owner, v_pid, v_session BIGINT;
    DECLARE v_others BIGINT DEFAULT 0;
    DECLARE v_held, v_token VARBINARY(16);
    DECLARE v_client BINARY(8);
    DECLARE v_host VARBINARY(255);
    DECLARE v_note VARBINARY(1024);
    DECLARE v_hints VARBINARY(8300);
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    SET @holdfast_news = '';
    START TRANSACTION;
    SELECT x.id, x.n, x.nw, x.cap, x.fence, x.head, x.token INTO v_line, v_n, v_nw, v_cap, v_fence, v_head, v_held FROM holdfast_line x
        WHERE x.ns = p_ns AND x.name = p_name FOR UPDATE;
    IF v_n = 1 AND v_nw = 0 AND p_keep = 0 THEN
        SET v_answer = v_held = p_token;
        IF v_held = '' THEN
            DELETE FROM holdfast_ticket WHERE line = v_line AND token = p_token;
            SET v_answer = ROW_COUNT();
        END IF;
        IF v_answer = 1 THEN
            UPDATE holdfast_line x SET n = 0, total = 0, token = '', touched = CLOCK WHERE x.id = v_line;
        END IF;
    ELSEIF v_n = 1 AND p_keep = 0 AND v_held IN ('', p_token) THEN
        SET v_now = CLOCK;
        SELECT x.token, x.client, x.weight, x.ttl, x.number, x.joined, x.process, x.owner, x.pid, x.host, x.note, x.hints,
            x.session INTO v_token, v_client, v_weight, v_ttl, v_number, v_joined, v_process, v_owner, v_pid, v_host, v_note, v_hints,
            v_session FROM holdfast_ticket x FORCE INDEX (queue)
            WHERE x.line = v_line AND x.state = 0 AND x.number >= v_head ORDER BY x.number LIMIT 1;
        SELECT c.till, c.many INTO v_till, v_many FROM holdfast_crowd c
            WHERE c.line = v_line AND c.client = v_client AND c.ttl = v_ttl;
        IF v_nw > 1 THEN -- not for one that waits alone: it is dear
            SELECT COUNT(*) INTO v_others FROM holdfast_crowd c WHERE c.line = v_line AND c.client = @holdfast_client;
        END IF;
        IF v_weight = v_cap AND v_till > v_now AND v_others = 0 AND v_session = 0 THEN
            SET v_answer = IF(v_held = p_token, 1, NULL);
            IF v_held = '' THEN
                DELETE FROM holdfast_ticket WHERE line = v_line AND token = p_token AND state = 1;
                SET v_answer = IF(ROW_COUNT() = 1, 1, NULL);
            END IF;
            IF v_answer = 1 THEN
                SET v_fence = GREATEST(v_fence + 1, v_now);
                DELETE FROM holdfast_ticket WHERE line = v_line AND token = v_token;
                IF v_many > 1 THEN
                    UPDATE holdfast_crowd c SET many = c.many - 1
                        WHERE c.line = v_line AND c.client = v_client AND c.ttl = v_ttl;
                ELSE
                    DELETE FROM holdfast_crowd WHERE line = v_line AND client = v_client AND ttl = v_ttl;
                END IF;
                UPDATE holdfast_line x SET total = v_cap, nw = v_nw - 1, head = v_number + 1, fence = v_fence, soonest = v_till,
                    touched = v_now,
                    token = v_token, number = v_number, joined = v_joined, granted = v_now, ttl = v_ttl, client = v_client,
                    process = v_process, owner = v_owner, pid = v_pid, host = v_host, note = v_note, hints = v_hints
                    WHERE x.id = v_line;
                IF v_client = @holdfast_client THEN
                    CALL holdfast_tell(v_client, 'g', v_token, CONCAT(v_fence, ' ', v_till));
                END IF;
            END IF;
        END IF;
    END IF;
    IF v_answer IS NULL THEN
        CALL holdfast_leave_line(p_ns, p_name, p_token, p_keep);
    ELSE
        COMMIT;
        IF @holdfast_wake = 1 THEN
            DO RELEASE_LOCK(CONCAT('hf_', HEX(p_token)));
        END IF;
        SELECT v_answer, @holdfast_news;
    END IF;
END
$$

-- leave: give the place up and admit the next in the same step (G4, G7, G8). p_keep > 0: of a hold: the store
-- ends it after so many ms by itself. Answers 1, or 0: it was not there. Repeatable.
-- The short way: all that are in the line are folded. Then token becomes w_token, which may be empty, and so on. The clock
-- is that of the beginning of the statement, which may have waited for the row. So a ticket whose time has ended since may
-- be let in: its time is still over.
CREATE OR REPLACE PROCEDURE holdfast_leave(p_ns VARBINARY(255), p_name VARBINARY(512), p_token BINARY(16), p_keep BIGINT)
SQL SECURITY INVOKER
BEGIN
    UPDATE holdfast_line x SET n = x.w_token <> '', total = IF(x.w_token = '', 0, x.cap), nw = 0, head = x.seq + 1,
        fence = IF(x.w_token = '', x.fence, GREATEST(x.fence + 1, CLOCK)), soonest = x.w_till, touched = CLOCK,
        granted = CLOCK, token = x.w_token, number = x.seq, joined = x.w_joined, ttl = x.w_ttl,
        client = x.w_client, process = x.w_process, owner = x.w_owner, pid = x.w_pid, host = x.w_host, note = x.w_note,
        hints = x.w_hints, w_token = ''
        WHERE x.ns = p_ns AND x.name = p_name AND x.token = p_token AND p_keep = 0
        AND (x.nw = 0 OR (x.w_token <> '' AND x.w_till > CLOCK AND x.w_client <> @holdfast_client));
    IF ROW_COUNT() = 1 THEN
        IF @holdfast_wake = 1 THEN
            DO RELEASE_LOCK(CONCAT('hf_', HEX(p_token)));
        END IF;
        SELECT 1, '';
    ELSE
        CALL holdfast_leave_some(p_ns, p_name, p_token, p_keep);
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
    CALL holdfast_unfold(l);
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

-- Renews one hold. Answers as holdfast_renew, but without p_wait also 4: its row, or that of its line, is locked just now,
-- or it is gone.
CREATE OR REPLACE PROCEDURE holdfast_renew_one(p_sent BIGINT, p_line BIGINT, p_token BINARY(16), p_ttl BIGINT, p_wait BIGINT,
    OUT p_said BIGINT) SQL SECURITY INVOKER
BEGIN
    DECLARE l ROW TYPE OF holdfast_line;
    DECLARE v_now, v_end, v_flags, v_expiry, v_sent, v_session BIGINT;
    DECLARE v_line BIGINT DEFAULT p_line;
    DECLARE v_there, v_ends_sooner BIGINT DEFAULT 0;
    IF p_line < 0 THEN
        SET v_line = NULL;
        SELECT x.id INTO v_line FROM holdfast_line x WHERE x.crc = -1 - p_line AND (x.token = p_token OR EXISTS
            (SELECT 1 FROM holdfast_ticket t WHERE t.line = x.id AND t.token = p_token)) LIMIT 1;
    END IF;
    SELECT COUNT(*) INTO v_there FROM holdfast_ticket x WHERE x.line = v_line AND x.token = p_token;
    IF v_there = 0 THEN
        -- folded; or somebody has just unfolded it, who had the line locked until the ticket's row was there
        SET l.token = '';
        IF p_wait > 0 THEN
            SELECT * INTO l FROM holdfast_line x WHERE x.id = v_line AND x.token = p_token FOR UPDATE;
        ELSE
            SELECT * INTO l FROM holdfast_line x WHERE x.id = v_line AND x.token = p_token FOR UPDATE SKIP LOCKED;
        END IF;
        CALL holdfast_unfold(l);
    END IF;
    IF p_wait > 0 THEN
        SELECT x.flags, x.expiry, x.sent, x.session INTO v_flags, v_expiry, v_sent, v_session FROM holdfast_ticket x
            WHERE x.line = v_line AND x.token = p_token AND x.state = 1 FOR UPDATE;
    ELSE
        SELECT x.flags, x.expiry, x.sent, x.session INTO v_flags, v_expiry, v_sent, v_session FROM holdfast_ticket x
            WHERE x.line = v_line AND x.token = p_token AND x.state = 1 FOR UPDATE SKIP LOCKED;
    END IF;
    SET v_now = CLOCK;
    SET v_end = v_now + p_ttl * 1000;
    SET v_ends_sooner = v_end < v_expiry AND p_sent >= v_sent AND v_flags = 0 AND p_ttl > 0;
    IF v_ends_sooner AND p_wait = 0 THEN
        SET v_there = 0;
        SELECT 1 INTO v_there FROM holdfast_line x WHERE x.id = v_line FOR UPDATE SKIP LOCKED;
        SET v_expiry = IF(v_there, v_expiry, NULL);
    END IF;
    IF v_expiry IS NULL AND p_wait = 0 THEN
        SET p_said = 4;
    ELSEIF v_expiry IS NULL OR v_expiry <= v_now OR v_flags > 1 OR v_session NOT IN (0, CONNECTION_ID()) THEN
        SET p_said = 0;
        CALL holdfast_disown(p_token);
    ELSEIF v_flags = 1 THEN
        SET p_said = 2;
    ELSEIF p_ttl = 0 THEN
        SET p_said = 3;
    ELSE
        IF v_ends_sooner THEN
            UPDATE holdfast_line x SET soonest = LEAST(x.soonest, v_end) WHERE x.id = v_line;
        END IF;
        UPDATE holdfast_ticket x SET ttl = IF(v_sent > p_sent, x.ttl, p_ttl),
            expiry = IF(v_sent > p_sent, GREATEST(x.expiry, v_end), v_end), sent = GREATEST(x.sent, p_sent)
            WHERE x.line = v_line AND x.token = p_token;
        SET p_said = 1;
        CALL holdfast_own(p_token, 0);
    END IF;
END
$$

-- renew: many holds of one client are alive (G1, G8). Answers for each: 1 renewed, 0 gone or over: never
-- revived, because another may have been told that the place is free; 2 marked: it ends at its expiry;
-- 3 it holds (ttl 0: only asked), or nothing is known of it: ask again. Takes no line, unless a hold shall end sooner than
-- before (a shorter ttl, a clock that was set back), for then the line must know of it, too; or the hold is folded. One whose
-- row, or whose line if it is needed, somebody has locked waits for that behind all others, when these are committed, each in
-- a transaction of its own, and for a second at most, so that a row that stands still costs no other hold its renewal; after
-- one such row it waits for none: there may be many. The first pass waits for no row. If a limit ends it all the same, nobody knows whether the
-- server has undone one statement or all of them (innodb_rollback_on_timeout): all count as not done.
-- p_lines, p_ttls: 8 bytes each, the highest first. A line is its number, or -1 - crc, of one whose number the client was
-- not told. p_sent: when it was sent, by the clock of the client. One that was
-- sent before the last one that was executed comes late, from a connection that was lost: its owner may rely on a longer
-- ttl by now. It shortens nothing.
CREATE OR REPLACE PROCEDURE holdfast_renew(p_sent BIGINT, p_lines VARBINARY(1024), p_tokens VARBINARY(2048),
    p_ttls VARBINARY(1024)) SQL SECURITY INVOKER
BEGIN
    DECLARE v_said BIGINT;
    DECLARE v_at, v_wait, v_stuck, v_undone BIGINT DEFAULT 0;
    DECLARE v_limit BIGINT DEFAULT @@innodb_lock_wait_timeout;
    DECLARE v_answer TEXT DEFAULT REPEAT(',4', LENGTH(p_tokens) DIV 16);
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; SET innodb_lock_wait_timeout = v_limit; RESIGNAL; END;
    SET @holdfast_news = '';
    REPEAT
        START TRANSACTION;
        SET v_at = 0;
        WHILE v_at < LENGTH(p_tokens) DIV 16 DO
            IF SUBSTR(v_answer, v_at * 2 + 2, 1) = '4' THEN
                BEGIN
                    DECLARE CONTINUE HANDLER FOR 1205 SET v_said = 3, v_stuck = v_stuck + v_wait, v_undone = 1 - v_wait;
                    SET v_said = 3;
                    IF v_stuck = 0 THEN
                        CALL holdfast_renew_one(p_sent, CONV(HEX(SUBSTR(p_lines, v_at * 8 + 1, 8)), 16, -10),
                            SUBSTR(p_tokens, v_at * 16 + 1, 16), CONV(HEX(SUBSTR(p_ttls, v_at * 8 + 1, 8)), 16, 10), v_wait,
                            v_said);
                    END IF;
                END;
                SET v_answer = INSERT(v_answer, v_at * 2 + 2, 1, v_said);
                IF v_wait > 0 THEN
                    COMMIT;
                    START TRANSACTION;
                ELSEIF v_undone > 0 THEN
                    ROLLBACK;
                    SET v_answer = REPEAT(',4', LENGTH(p_tokens) DIV 16), v_at = LENGTH(p_tokens);
                END IF;
            END IF;
            SET v_at = v_at + 1;
        END WHILE;
        COMMIT;
        SET v_wait = v_wait + 1, innodb_lock_wait_timeout = 1;
    UNTIL v_wait = 2 OR LOCATE('4', v_answer) = 0 END REPEAT;
    SET innodb_lock_wait_timeout = v_limit;
    SELECT SUBSTR(v_answer, 2), @holdfast_news;
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
    CALL holdfast_unfold(l);
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
    CALL holdfast_unfold(l);
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
        -- those who are let in wait for a user lock which the session of this one may still own: it may stand still
        FOR r IN (SELECT x.token, x.client, x.expiry FROM holdfast_ticket x WHERE x.line = l.id AND x.state = 1
                AND x.granted = v_now AND NOT x.client <=> @holdfast_client) DO
            CALL holdfast_revoke(l.id, r.token, r.client, 'l', v_now, r.expiry);
        END FOR;
        CALL holdfast_next(l, v_now);
        CALL holdfast_save(l, v_now);
    END IF;
    COMMIT;
    SELECT v_state IS NOT NULL, @holdfast_news;
END
$$

-- look: a line as it is, one row for each ticket whose time is not over, those that hold first, or none. Changes nothing.
-- One statement reads both places where a hold may be: read one after the other, a line that is handed on would look free.
-- Its parts are in order by themselves: sorted as a whole, notes and hints would go through a file. p_front: of the queue only that
-- ticket and those in front of it. p_notes 0: without notes. p_client, p_follow: nobody is told of changes here.
CREATE OR REPLACE PROCEDURE holdfast_look(p_ns VARBINARY(255), p_name VARBINARY(512), p_client BINARY(8), p_follow BIGINT,
    p_front VARBINARY(16), p_notes BIGINT) SQL SECURITY INVOKER
BEGIN
    DECLARE v_now, v_line, v_last BIGINT;
    SET v_now = CLOCK;
    SELECT l.id INTO v_line FROM holdfast_line l WHERE l.ns = p_ns AND l.name = p_name;
    SELECT t.number INTO v_last FROM holdfast_ticket t WHERE t.line = v_line AND t.token = p_front AND t.state = 0;
    -- no expiry is shown as further ahead than its ttl
    SELECT v_now, l.kind, l.cap, l.token, 1, 0, l.total, l.fence, LEAST(l.soonest, v_now + l.ttl * 1000), l.joined,
        l.granted, l.process, l.owner, l.pid, l.host, IF(p_notes > 0, l.note, ''), l.hints
        FROM holdfast_line l WHERE l.id = v_line AND l.token <> '' AND l.soonest > v_now
    UNION ALL
    (SELECT v_now, l.kind, l.cap, x.token, 1, x.flags, x.weight, x.fence,
        IF(x.flags < 2, LEAST(x.expiry, v_now + x.ttl * 1000), x.expiry), x.joined,
        x.granted, x.process, x.owner, x.pid, x.host, IF(p_notes > 0, x.note, ''), x.hints
        FROM holdfast_line l STRAIGHT_JOIN holdfast_ticket x FORCE INDEX (queue) ON x.line = l.id AND x.state = 1
        WHERE l.id = v_line AND x.expiry > v_now ORDER BY x.fence LIMIT 9223372036854775807)
    UNION ALL
    SELECT v_now, l.kind, l.cap, l.w_token, 0, 0, l.cap, 0, l.w_till, l.w_joined, 0, l.w_process, l.w_owner, l.w_pid, l.w_host,
        IF(p_notes > 0, l.w_note, ''), l.w_hints FROM holdfast_line l WHERE l.id = v_line AND l.w_token <> '' AND l.w_till > v_now
    UNION ALL
    (SELECT v_now, l.kind, l.cap, x.token, 0, x.flags, x.weight, x.fence, c.till, x.joined,
        x.granted, x.process, x.owner, x.pid, x.host, IF(p_notes > 0, x.note, ''), x.hints
        FROM holdfast_line l STRAIGHT_JOIN holdfast_ticket x FORCE INDEX (queue) ON x.line = l.id AND x.state = 0
        STRAIGHT_JOIN holdfast_crowd c ON c.line = x.line AND c.client = x.client AND c.ttl = x.ttl
        WHERE l.id = v_line AND c.till > v_now AND (v_last IS NULL OR x.number <= v_last)
        ORDER BY x.number LIMIT 9223372036854775807);
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
        (SELECT COUNT(*) FROM holdfast_ticket t WHERE t.line = l.id AND t.state = 1 AND t.expiry > v_now)
            + (l.token <> '' AND l.soonest > v_now) AS h,
        (SELECT COUNT(*) FROM holdfast_ticket t JOIN holdfast_crowd c ON c.line = t.line AND c.client = t.client
            AND c.ttl = t.ttl WHERE t.line = l.id AND t.state = 0 AND c.till > v_now) + (l.w_token <> '' AND l.w_till > v_now) AS w,
        IF(l.token <> '' AND l.soonest > v_now, GREATEST((v_now - l.granted) DIV 1000, 0),
            (SELECT COALESCE(GREATEST((v_now - MIN(t.granted)) DIV 1000, 0), -1) FROM holdfast_ticket t
                WHERE t.line = l.id AND t.state = 1 AND t.expiry > v_now)),
        IF(l.token <> '' AND l.soonest > v_now, l.total, (SELECT COALESCE(SUM(t.weight), 0) FROM holdfast_ticket t
            WHERE t.line = l.id AND t.state = 1 AND t.expiry > v_now))
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

-- ---- mode=optimistic ----
--
-- One row has owner, version and lease, and is taken by compare-and-set: an UPDATE that names the version that was read,
-- and tests again that nobody has the lease (G1). Each statement here is a transaction of its own. Whoever comes second
-- waits for the row, finds another version, and reads again. A version is a fence (G2) and only a grant changes it;
-- renewing and leaving name the token. Between the read and the UPDATE the owner may have renewed: then its expiry is
-- later than the time that was read, and nothing is changed. Repeatable: a token that has the lease answers so.
--
-- take: r is the row as it is then; it is ours if it has our token.
CREATE OR REPLACE PROCEDURE holdfast_take(p_ns VARBINARY(255), p_name VARBINARY(512), p_token VARBINARY(16), p_ttl BIGINT,
    p_process BIGINT, p_owner BIGINT, p_pid BIGINT, p_host VARBINARY(255), p_note VARBINARY(1024),
    OUT r ROW TYPE OF holdfast_lease) SQL SECURITY INVOKER
BEGIN
    DECLARE v_now, v_mark BIGINT;
    DECLARE v_done BIGINT DEFAULT 0;
    WHILE v_done = 0 DO
        SET r.id = NULL;
        SELECT * INTO r FROM holdfast_lease x WHERE x.ns = p_ns AND x.name = p_name;
        SET v_now = CLOCK;
        IF r.id IS NULL THEN
            -- locked until the row is there: whoever removed the row before has committed by then
            START TRANSACTION;
            SELECT m.fence INTO v_mark FROM holdfast_mark m WHERE m.bucket = CRC32(CONCAT(p_ns, X'00', p_name)) % 1024
                LOCK IN SHARE MODE;
            INSERT IGNORE INTO holdfast_lease (ns, name, version, touched) VALUES (p_ns, p_name, v_mark, v_now);
            COMMIT;
        ELSEIF r.token = p_token AND r.expiry > v_now THEN
            -- this may come late, and its owner have renewed it for longer
            UPDATE holdfast_lease x SET expiry = GREATEST(x.expiry, v_now + p_ttl * 1000)
                WHERE x.id = r.id AND x.version = r.version AND x.token = p_token;
            SELECT COUNT(*) INTO v_done FROM holdfast_lease x
                WHERE x.id = r.id AND x.version = r.version AND x.token = p_token;
        ELSEIF r.token = '' OR r.expiry <= v_now THEN
            UPDATE holdfast_lease x SET version = GREATEST(x.version + 1, v_now), token = p_token,
                expiry = v_now + p_ttl * 1000, granted = v_now, sent = 0, touched = v_now, process = p_process,
                owner = p_owner, pid = p_pid, host = p_host, note = p_note
                WHERE x.id = r.id AND x.version = r.version AND (x.token = '' OR x.expiry <= v_now);
            SET v_done = ROW_COUNT();
            IF v_done = 1 THEN
                SET r.version = GREATEST(r.version + 1, v_now), r.token = p_token, r.expiry = v_now + p_ttl * 1000;
            END IF;
        ELSE
            SET v_done = 1;
        END IF;
    END WHILE;
END
$$

-- claim: as join. Who waits is nowhere: its client tries again.
CREATE OR REPLACE PROCEDURE holdfast_claim(p_ns VARBINARY(255), p_name VARBINARY(512), p_token BINARY(16), p_kind BIGINT,
    p_cap BIGINT, p_weight BIGINT, p_ttl BIGINT, p_flags BIGINT, p_client BINARY(8), p_process BIGINT, p_owner BIGINT,
    p_pid BIGINT, p_host VARBINARY(255), p_note VARBINARY(1024), p_hints VARBINARY(8300)) SQL SECURITY INVOKER
BEGIN
    DECLARE r ROW TYPE OF holdfast_lease;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    CALL holdfast_take(p_ns, p_name, p_token, p_ttl, p_process, p_owner, p_pid, p_host, p_note, r);
    SELECT IF(r.token = p_token, CONCAT_WS(',', 0, r.version, 0, 0, 0, r.id), IF((p_flags & 1) > 0, '2',
        CONCAT_WS(',', 1, CLOCK, GREATEST(r.expiry - CLOCK + 999, 0) DIV 1000, CLOCK, 0, r.id))), '';
END
$$

-- seek: as wait, of tickets that nobody but their client knows of. p_token: the one that would take it, or ''.
-- At minus 2^32: at no position.
CREATE OR REPLACE PROCEDURE holdfast_seek(p_ns VARBINARY(255), p_name VARBINARY(512), p_client BINARY(8), p_ttl BIGINT,
    p_tokens VARBINARY(1024), p_token VARBINARY(16), p_process BIGINT, p_owner BIGINT, p_pid BIGINT,
    p_host VARBINARY(255), p_note VARBINARY(1024)) SQL SECURITY INVOKER
BEGIN
    DECLARE r ROW TYPE OF holdfast_lease;
    DECLARE v_states TEXT DEFAULT '';
    DECLARE v_at BIGINT DEFAULT 0;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    IF p_token <> '' THEN
        CALL holdfast_take(p_ns, p_name, p_token, p_ttl, p_process, p_owner, p_pid, p_host, p_note, r);
    END IF;
    WHILE v_at < LENGTH(p_tokens) DO
        SET v_states = CONCAT(v_states, ',', IF(r.token <=> SUBSTR(p_tokens, v_at + 1, 16), r.version, -4294967296)),
            v_at = v_at + 16;
    END WHILE;
    SELECT CONCAT(CLOCK, ',2147483648,', COALESCE(GREATEST(r.expiry - CLOCK + 999, 0) DIV 1000, -1), v_states), '';
END
$$

-- drop: as leave, and as evict, of which the owner learns when it renews.
CREATE OR REPLACE PROCEDURE holdfast_drop(p_ns VARBINARY(255), p_name VARBINARY(512), p_token BINARY(16), p_evict BIGINT)
SQL SECURITY INVOKER
BEGIN
    UPDATE holdfast_lease x SET token = '', touched = CLOCK WHERE x.ns = p_ns AND x.name = p_name AND x.token = p_token;
    SELECT ROW_COUNT(), '';
END
$$

-- prolong: as renew.
CREATE OR REPLACE PROCEDURE holdfast_prolong(p_sent BIGINT, p_ids VARBINARY(1024), p_tokens VARBINARY(2048),
    p_ttls VARBINARY(1024)) SQL SECURITY INVOKER
BEGIN
    DECLARE v_end, v_ttl, v_expiry BIGINT;
    DECLARE v_at BIGINT DEFAULT 0;
    DECLARE v_answer TEXT DEFAULT '';
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    START TRANSACTION;
    WHILE v_at < LENGTH(p_tokens) DIV 16 DO
        SET v_ttl = CONV(HEX(SUBSTR(p_ttls, v_at * 8 + 1, 8)), 16, 10), v_expiry = NULL;
        SELECT x.expiry INTO v_expiry FROM holdfast_lease x
            WHERE x.id = CONV(HEX(SUBSTR(p_ids, v_at * 8 + 1, 8)), 16, 10)
            AND x.token = SUBSTR(p_tokens, v_at * 16 + 1, 16) FOR UPDATE;
        SET v_end = CLOCK;
        SET v_expiry = IF(v_expiry > v_end, v_expiry, NULL), v_end = v_end + v_ttl * 1000;
        IF v_expiry IS NOT NULL AND v_ttl > 0 THEN
            UPDATE holdfast_lease x SET expiry = IF(x.sent > p_sent, GREATEST(x.expiry, v_end), v_end),
                sent = GREATEST(x.sent, p_sent) WHERE x.id = CONV(HEX(SUBSTR(p_ids, v_at * 8 + 1, 8)), 16, 10);
        END IF;
        SET v_answer = CONCAT(v_answer, IF(v_at > 0, ',', ''), IF(v_expiry IS NULL, 0, IF(v_ttl = 0, 3, 1))),
            v_at = v_at + 1;
    END WHILE;
    COMMIT;
    SELECT v_answer, '';
END
$$

-- peek: as look: who has it.
CREATE OR REPLACE PROCEDURE holdfast_peek(p_ns VARBINARY(255), p_name VARBINARY(512)) SQL SECURITY INVOKER
BEGIN
    SELECT CLOCK, 0, 2147483648, x.token, 1, 0, 2147483648, x.version, x.expiry, x.granted, x.granted, x.process, x.owner,
        x.pid, x.host, x.note, '' FROM holdfast_lease x
        WHERE x.ns = p_ns AND x.name = p_name AND x.token <> '' AND x.expiry > CLOCK;
END
$$

-- ---- mode=pessimistic, mode=named ----
--
-- The lock is the server's, on a row of this table or of a name, and belongs to a session. A row is locked by an UPDATE
-- in a transaction that is open for as long as the lock is held: to release is to commit. The update changes the version,
-- which is the fence, and says who holds. Those that look read it uncommitted: somebody holds if that version is not the
-- committed one. If the holder dies the server takes it back, so its fence is not kept: the next one is greater by the
-- clock, which is read when the lock is there (G2). With user locks it is the same: a row that is never committed says for
-- whom a session has its lock. It costs no write to disk, no log of a replica sees it, and it goes with the session.
--
-- Each such session owns the user lock hf_s_NUMBER, with a random number that its client draws. It is free when the
-- server has rolled back all that the session did: that is how its end is proved (G7).

-- name: the user lock p_key; answers 0 if it is ours, or nothing. The label of the ticket before goes first, so that
-- nobody sees it beside this lock.
CREATE OR REPLACE PROCEDURE holdfast_name(p_key VARBINARY(192), p_seconds BIGINT, p_label VARBINARY(64)) SQL SECURITY INVOKER
BEGIN
    ROLLBACK;
    IF GET_LOCK(p_key, p_seconds) = 1 THEN -- NULL: it was interrupted
        START TRANSACTION;
        INSERT INTO holdfast_session VALUES (CONNECTION_ID(), p_label, CLOCK);
        SELECT 0;
    END IF;
END
$$

-- The row of a name. Who finds it locked need not wait for it: it is there. The clock: a row that is new has not been idle.
CREATE OR REPLACE PROCEDURE holdfast_row_of(p_ns VARBINARY(255), p_name VARBINARY(512)) SQL SECURITY INVOKER
BEGIN
    DECLARE v_mark BIGINT;
    DECLARE CONTINUE HANDLER FOR 1205 BEGIN END;
    START TRANSACTION;
    SELECT m.fence INTO v_mark FROM holdfast_mark m WHERE m.bucket = CRC32(CONCAT(p_ns, X'00', p_name)) % 1024
        LOCK IN SHARE MODE;
    SET STATEMENT innodb_lock_wait_timeout = 0 FOR INSERT IGNORE INTO holdfast_mutex (ns, name, version)
        VALUES (p_ns, p_name, GREATEST(v_mark, CLOCK));
    COMMIT;
END
$$

-- end: of a session of ours, by the number that the server gave: p_ms < 0: KILL QUERY, and answers 1 if it is there; else
-- KILL, and answers 1 if it has gone within p_ms. Who has its user lock is the session, and no other that got its number
-- from a server that was started later.
CREATE OR REPLACE PROCEDURE holdfast_end(p_id BIGINT, p_session BIGINT, p_ms BIGINT) SQL SECURITY INVOKER
BEGIN
    DECLARE v_lock VARCHAR(64) DEFAULT CONCAT('hf_s_', p_session);
    DECLARE v_there BIGINT DEFAULT IS_USED_LOCK(v_lock) <=> p_id;
    DECLARE v_gone BIGINT;
    DECLARE CONTINUE HANDLER FOR 1094 BEGIN END; -- it goes by itself
    IF v_there AND p_ms < 0 THEN
        KILL QUERY p_id;
        SELECT 1;
    ELSEIF p_ms >= 0 THEN
        IF v_there THEN
            KILL p_id;
        END IF;
        SET v_gone = COALESCE(GET_LOCK(v_lock, p_ms / 1000), 0);
        DO RELEASE_LOCK(v_lock);
        SELECT v_gone;
    END IF;
END
$$

-- Which session has a lock, for which ticket, and since when; p_id NULL: none. The ticket of a lock of another program is
-- made of its session's number. Read uncommitted: see above. What is committed is read after that: who has released it
-- meanwhile does not hold.
CREATE OR REPLACE PROCEDURE holdfast_row_owner(p_ns VARBINARY(255), p_name VARBINARY(512), OUT p_id BIGINT,
    OUT p_token VARBINARY(16), OUT p_fence BIGINT, OUT p_since BIGINT, OUT p_note VARBINARY(64)) SQL SECURITY INVOKER
BEGIN
    DECLARE v_version BIGINT;
    SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED;
    SELECT x.session, UNHEX(SUBSTR(x.label, 4, 32)), x.version, x.since, SUBSTR(x.label, 37)
        INTO p_id, p_token, p_fence, p_since, p_note FROM holdfast_mutex x WHERE x.ns = p_ns AND x.name = p_name;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    SELECT x.version INTO v_version FROM holdfast_mutex x WHERE x.ns = p_ns AND x.name = p_name;
    IF p_fence <=> v_version THEN
        SET p_id = NULL, p_token = NULL;
    END IF;
END
$$
CREATE OR REPLACE PROCEDURE holdfast_key_holder(p_key VARBINARY(192), OUT p_id BIGINT, OUT p_token VARBINARY(16),
    OUT p_fence BIGINT, OUT p_since BIGINT, OUT p_note VARBINARY(64)) SQL SECURITY INVOKER
BEGIN
    SET p_id = IS_USED_LOCK(p_key), p_fence = 0, p_token = UNHEX(LPAD(HEX(p_id), 32, '0')), p_since = CLOCK,
        p_note = 'a lock of another program';
    SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED;
    SELECT UNHEX(SUBSTR(x.label, 4, 32)), x.since, SUBSTR(x.label, 37) INTO p_token, p_since, p_note
        FROM holdfast_session x WHERE x.id = p_id;
END
$$

-- As look, and as evict, of such a one: whose ticket it is, is ended.
CREATE OR REPLACE PROCEDURE holdfast_holder_is(p_id BIGINT, p_token VARBINARY(16), p_fence BIGINT, p_since BIGINT,
    p_note VARBINARY(64)) SQL SECURITY INVOKER
BEGIN
    SELECT CLOCK, 0, 2147483648, p_token, 1, 0, 2147483648, p_fence, 0, p_since, p_since, 0, 0, p_id,
        COALESCE((SELECT p.host FROM information_schema.processlist p WHERE p.id = p_id), '-'), p_note, ''
        FROM DUAL WHERE p_id IS NOT NULL;
END
$$
CREATE OR REPLACE PROCEDURE holdfast_holder_ends(p_id BIGINT, p_token VARBINARY(16), p_whose VARBINARY(16))
SQL SECURITY INVOKER
BEGIN
    DECLARE v_there BIGINT DEFAULT COALESCE(p_token = p_whose, 0);
    DECLARE v_looks BIGINT DEFAULT 0;
    DECLARE CONTINUE HANDLER FOR 1094 SET v_there = 0;
    IF v_there THEN
        KILL p_id;
        -- it gives its lock back a little later, before it is gone from this list
        WHILE v_looks < 100 AND EXISTS (SELECT 1 FROM information_schema.processlist p WHERE p.id = p_id) DO
            DO SLEEP(0.01);
            SET v_looks = v_looks + 1;
        END WHILE;
    END IF;
    SELECT v_there, '';
END
$$
CREATE OR REPLACE PROCEDURE holdfast_row_look(p_ns VARBINARY(255), p_name VARBINARY(512)) SQL SECURITY INVOKER
BEGIN
    CALL holdfast_row_owner(p_ns, p_name, @holdfast_i, @holdfast_t, @holdfast_f, @holdfast_s, @holdfast_n);
    CALL holdfast_holder_is(@holdfast_i, @holdfast_t, @holdfast_f, @holdfast_s, @holdfast_n);
END
$$
CREATE OR REPLACE PROCEDURE holdfast_row_end(p_ns VARBINARY(255), p_name VARBINARY(512), p_token BINARY(16))
SQL SECURITY INVOKER
BEGIN
    CALL holdfast_row_owner(p_ns, p_name, @holdfast_i, @holdfast_t, @holdfast_f, @holdfast_s, @holdfast_n);
    CALL holdfast_holder_ends(@holdfast_i, @holdfast_t, p_token);
END
$$
CREATE OR REPLACE PROCEDURE holdfast_key_look(p_key VARBINARY(192)) SQL SECURITY INVOKER
BEGIN
    CALL holdfast_key_holder(p_key, @holdfast_i, @holdfast_t, @holdfast_f, @holdfast_s, @holdfast_n);
    CALL holdfast_holder_is(@holdfast_i, @holdfast_t, @holdfast_f, @holdfast_s, @holdfast_n);
END
$$
CREATE OR REPLACE PROCEDURE holdfast_key_end(p_key VARBINARY(192), p_token BINARY(16)) SQL SECURITY INVOKER
BEGIN
    CALL holdfast_key_holder(p_key, @holdfast_i, @holdfast_t, @holdfast_f, @holdfast_s, @holdfast_n);
    CALL holdfast_holder_ends(@holdfast_i, @holdfast_t, p_token);
END
$$

-- sweep: removes lines that nobody has used for ten minutes, some hundred at a time. Answers how many. Whoever
-- is in such a line is dead, or renews without touching it: then it is looked at again in ten minutes.
CREATE OR REPLACE PROCEDURE holdfast_sweep(p_idle BIGINT) SQL SECURITY INVOKER
BEGIN
    DECLARE l ROW TYPE OF holdfast_line;
    DECLARE v_now, v_version BIGINT;
    DECLARE v_count BIGINT DEFAULT 0;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    SET @holdfast_news = '', v_now = CLOCK;
    FOR i IN (SELECT x.id FROM holdfast_line x WHERE x.touched < v_now - p_idle * 1000 AND NOT EXISTS
            (SELECT 1 FROM holdfast_cell c WHERE c.line = x.id AND (c.till IS NULL OR c.till > v_now)) LIMIT 200) DO
        START TRANSACTION;
        SET l.id = NULL;
        SELECT * INTO l FROM holdfast_line x WHERE x.id = i.id AND x.touched < v_now - p_idle * 1000
            FOR UPDATE SKIP LOCKED;
        CALL holdfast_unfold(l);
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
    START TRANSACTION;
    FOR e IN (SELECT x.id, x.ns, x.name, x.version FROM holdfast_lease x WHERE x.touched < v_now - p_idle * 1000
            AND x.expiry < v_now - p_idle * 1000 LIMIT 200 FOR UPDATE SKIP LOCKED) DO
        UPDATE holdfast_mark m SET fence = GREATEST(m.fence, e.version)
            WHERE m.bucket = CRC32(CONCAT(e.ns, X'00', e.name)) % 1024;
        DELETE FROM holdfast_lease WHERE id = e.id;
        SET v_count = v_count + 1;
    END FOR;
    COMMIT;
    -- found without a lock, and locked one by one: a scan that locks would refuse those that do not wait
    FOR w IN (SELECT x.ns, x.name FROM holdfast_mutex x WHERE x.version < v_now - p_idle * 1000 LIMIT 200) DO
        START TRANSACTION;
        SET v_version = NULL;
        SELECT x.version INTO v_version FROM holdfast_mutex x WHERE x.ns = w.ns AND x.name = w.name
            AND x.version < v_now - p_idle * 1000 FOR UPDATE SKIP LOCKED;
        IF v_version IS NOT NULL THEN
            UPDATE holdfast_mark m SET fence = GREATEST(m.fence, v_version)
                WHERE m.bucket = CRC32(CONCAT(w.ns, X'00', w.name)) % 1024;
            DELETE FROM holdfast_mutex WHERE ns = w.ns AND name = w.name;
            SET v_count = v_count + 1;
        END IF;
        COMMIT;
    END FOR;
    SELECT v_count, @holdfast_news;
END
$$
INSERT IGNORE INTO holdfast_format VALUES (2)
$$
SET sql_mode = @holdfast_mode
$$
