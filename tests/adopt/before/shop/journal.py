"""What the shop's jobs have done: a line each."""

import json
import os


def write(what, **fields):
    with open(os.environ["SHOP_JOURNAL"], "a") as file:
        file.write(json.dumps({"what": what} | fields) + "\n")
