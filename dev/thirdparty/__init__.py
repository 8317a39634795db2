"""The third party that the sample jobs call: on loopback, and as reliable as it is told to be.

`PUT /_control/rules` sets what the next requests to a path get: a status, a 429 with Retry-After, a long
silence, a dropped connection. `GET /_control/requests` tells what arrived, `/_control/charges` what was
charged.
"""
