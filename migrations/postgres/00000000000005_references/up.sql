-- The log, the state changes and the attempts are written in the transaction of their operation, or for one that the writer has just
-- read. To look each operation up again, and lock it, cost a third of a batch; the audits of the ledger look for what has none.
ALTER TABLE deliveries DROP CONSTRAINT deliveries_operation_id_fkey;
ALTER TABLE transitions DROP CONSTRAINT transitions_operation_id_fkey;
ALTER TABLE attempts DROP CONSTRAINT attempts_operation_id_fkey;
