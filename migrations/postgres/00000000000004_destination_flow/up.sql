-- How calls come back after a destination was slowed down: one probe, then a ramp (beside `throttled_until` and `probing`).
ALTER TABLE destinations ADD COLUMN slowed_at BIGINT;
-- How often in a row it was slowed down; the waits grow with it.
ALTER TABLE destinations ADD COLUMN setbacks BIGINT NOT NULL DEFAULT 0;
-- When a probe passed: from then on the rate grows to its full height.
ALTER TABLE destinations ADD COLUMN ramp_from BIGINT;
-- The operation that is the probe, and its version when it was taken.
ALTER TABLE destinations ADD COLUMN probe_operation TEXT;
ALTER TABLE destinations ADD COLUMN probe_version BIGINT;
