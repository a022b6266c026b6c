ALTER TABLE destinations DROP COLUMN probe_version;
ALTER TABLE destinations DROP COLUMN probe_operation;
ALTER TABLE destinations DROP COLUMN ramp_from;
ALTER TABLE destinations DROP COLUMN setbacks;
ALTER TABLE destinations DROP COLUMN slowed_at;
