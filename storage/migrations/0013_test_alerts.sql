-- expand: test alerts that the API asks for
ALTER TABLE redrive.alerts
    DROP CONSTRAINT alerts_kind_check,
    ADD CONSTRAINT alerts_kind_check CHECK (kind IN ('first_seen', 'seen_again', 'regression', 'rate',
        'resolved', 'no_consumer', 'oldest_undecided', 'test'));
