-- Least privilege for the relay of the example configuration: after `cdc-outbox init`, as an administrator.
-- `cdc-outbox init --print` prints the same for your own configuration.

-- An account for the relay and nothing else; '%' may be narrowed to the host it runs on.
-- CREATE USER 'relay'@'%' IDENTIFIED BY '…';  (the password of mysql.password)

-- read the binlog, and ask where it ends
GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'relay'@'%';
-- read events and write their outcome
GRANT SELECT, UPDATE ON `shop`.`outbox_event` TO 'relay'@'%';
-- keep the position, the epoch and the state
GRANT SELECT, INSERT, UPDATE ON `shop`.`cdc_outbox_checkpoint` TO 'relay'@'%';
-- optional: small row images in the relay's own sessions, a fraction of the binlog
/*!80014 GRANT SESSION_VARIABLES_ADMIN ON *.* TO 'relay'@'%' */;
-- optional: small row images in the relay's own sessions, a fraction of the binlog
/*M!100502 GRANT BINLOG ADMIN ON *.* TO 'relay'@'%' */;
-- optional: only `cdc-outbox emit`, which puts a test event in
GRANT INSERT ON `shop`.`outbox_event` TO 'relay'@'%';
