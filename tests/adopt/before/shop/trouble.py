"""What goes wrong on a bad day: `python -m shop.trouble`."""

from shop.tasks import orders


def main():
    orders.broken.apply_async(("o-7",), link_error=orders.alarm.s())
    orders.crash.delay("o-8")


if __name__ == "__main__":
    main()
