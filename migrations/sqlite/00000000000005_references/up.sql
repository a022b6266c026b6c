-- Here a connection decides whether references are checked; the writer's does not. See the other folder.
SELECT 1;
