"""What every process agrees on about the broker: queues as data, compiled to AMQP, and the job catalogue."""
