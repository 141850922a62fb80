"""Scripts with which shells complete commands and their flags: static, so that a Tab starts no Python."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

SHELLS = ("bash", "zsh", "fish")
INSTALL = {
    "bash": 'eval "$(arelu-meta completion bash)"        # in ~/.bashrc',
    "zsh": 'eval "$(arelu-meta completion zsh)"         # in ~/.zshrc',
    "fish": "arelu-meta completion fish | source         # in ~/.config/fish/config.fish",
}
_ZSH = "autoload -Uz compinit bashcompinit && compinit && bashcompinit\n"
_BASH = """_arelu_meta() {
  local words="" current="${COMP_WORDS[COMP_CWORD]}"
  if [ "$COMP_CWORD" -eq 1 ]; then
    words=%(commands)s
  else
    case "${COMP_WORDS[1]} ${COMP_WORDS[COMP_CWORD-1]}" in
%(values)s
      *) case "${COMP_WORDS[1]}" in
%(flags)s
      esac ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _arelu_meta arelu-meta
"""


@dataclass(frozen=True)
class Completed:
    """What can be completed of a command: what it does, its flags with their help, and words that need no flag.

    `values` are words that follow a flag of this command, where those are not what follows it elsewhere.
    """

    summary: str
    flags: Mapping[str, str] = field(default_factory=dict)
    words: Sequence[str] = ()
    values: Mapping[str, Sequence[str]] = field(default_factory=dict)


def script(shell: str, commands: Mapping[str, Completed], values: Mapping[str, Sequence[str]]) -> str:
    """Write the script of a shell.

    Args:
        shell: one of `SHELLS`.
        commands: every command by name.
        values: words that follow a flag, by flag; after others, files are completed.
    """
    if shell == "fish":
        return _fish(commands, values)
    flags = "\n".join(
        f"      {name}) words={shlex.quote(' '.join([*command.words, *command.flags]))} ;;"
        for name, command in commands.items()
    )
    following = {f"{name} {flag}": words for name, one in commands.items() for flag, words in one.values.items()}
    following = {f'"{key}"': words for key, words in following.items()}
    following |= {f'*" {flag}"': words for flag, words in values.items()}  # the first that fits is taken
    after = "\n".join(f"      {key}) words={shlex.quote(' '.join(words))} ;;" for key, words in following.items())
    text = _BASH % {"commands": shlex.quote(" ".join(commands)), "values": after, "flags": flags}
    return (_ZSH if shell == "zsh" else "") + text


def _fish(commands: Mapping[str, Completed], values: Mapping[str, Sequence[str]]) -> str:
    lines = ["complete -c arelu-meta -e"]
    for name, command in commands.items():
        lines.append(f"complete -c arelu-meta -n __fish_use_subcommand -f -a {name} -d {_quoted(command.summary)}")
        of_command = f"complete -c arelu-meta -n '__fish_seen_subcommand_from {name}'"
        lines += [f"{of_command} -a {_quoted(' '.join(command.words))}"] if command.words else []
        for flag, text in command.flags.items():
            words = command.values.get(flag) or values.get(flag)
            following = f" -x -a {_quoted(' '.join(words))}" if words else ""
            lines.append(f"{of_command} -l {flag.removeprefix('--')}{following} -d {_quoted(text)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Quote for fish, in whose quotes a backslash escapes.

    >>> _quoted("Wilson's")
    "'Wilson\\\\'s'"
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
