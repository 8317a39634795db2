-- Business tables of the sample jobs.

CREATE TABLE redrive.sample_charges (
    order_id     text PRIMARY KEY,
    amount_cents bigint NOT NULL CHECK (amount_cents > 0),
    currency     text NOT NULL,
    reference    text NOT NULL, -- the third party's own
    job_id       text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE redrive.sample_emails (
    email_key   text PRIMARY KEY,
    state       text NOT NULL CHECK (state IN ('sending', 'sent')),
    job_id      text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    sent_at     timestamptz
);
