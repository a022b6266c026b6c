ALTER TABLE attempts ADD CONSTRAINT attempts_operation_id_fkey FOREIGN KEY (operation_id) REFERENCES operations (operation_id);
ALTER TABLE transitions ADD CONSTRAINT transitions_operation_id_fkey FOREIGN KEY (operation_id) REFERENCES operations (operation_id);
ALTER TABLE deliveries ADD CONSTRAINT deliveries_operation_id_fkey FOREIGN KEY (operation_id) REFERENCES operations (operation_id);
