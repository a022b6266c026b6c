DROP TABLE rate_partitions;
