"""`dlq completion`"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes `dlq` in a SHELL.

    \b
    bash: echo 'eval "$(dlq completion bash)"' >> ~/.bashrc
    zsh:  echo 'eval "$(dlq completion zsh)"' >> ~/.zshrc
    fish: dlq completion fish > ~/.config/fish/completions/dlq.fish

    Example: eval "$(dlq completion bash)"
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, "dlq", "_DLQ_COMPLETE").source())
