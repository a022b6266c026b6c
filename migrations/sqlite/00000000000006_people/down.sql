DROP INDEX deliveries_verdict;
DROP INDEX operations_reason;
DROP TABLE sessions;
DROP TABLE people;
