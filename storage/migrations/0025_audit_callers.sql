-- expand: what a caller did is found quickly however many rows others have
CREATE INDEX audit_by ON redrive.audit (by, id);
