import { layout } from "./layout.ts";

/**
 * The command of a release: a shell script that starts no program of its own, except where it was called by a link and nothing but
 * `readlink` says where that leads. With `root` it is for that place alone and looks for nothing.
 */
export function launcher(root?: string): string {
  const find =
    root === undefined
      ? [
          "case $0 in */*) self=$0 ;; *) self=./$0 ;; esac",
          'if [ -L "$self" ]; then self=$(readlink -f -- "$self"); fi',
          "bin=${self%/*}",
          "case $bin in",
          "  /*/*) root=${bin%/*} ;;",
          "  *) root=$(CDPATH='' cd -- \"$bin/..\" && pwd -P) ;;",
          "esac",
        ]
      : [`root=${root}`];
  return [
    "#!/bin/sh",
    "# Runs the command line of this release with the Node that came with it.",
    "set -eu",
    ...find,
    "# The compile cache holds the compiled code: it shortens every later start. Without a home there is none, which is no failure.",
    'if [ -n "${AGENT_SANDBOX_CACHE:-}" ]; then cache=$AGENT_SANDBOX_CACHE',
    'elif [ -n "${XDG_CACHE_HOME:-}" ]; then cache=$XDG_CACHE_HOME/agent-sandbox',
    'elif [ -n "${HOME:-}" ]; then cache=$HOME/.cache/agent-sandbox',
    "else cache=; fi",
    'if [ -n "$cache" ]; then export NODE_COMPILE_CACHE="${NODE_COMPILE_CACHE:-$cache/compile}"; fi',
    `exec "$root/${layout.node}" --disable-warning=ExperimentalWarning "$root/${layout.app}/main.js" "$@"`,
    "",
  ].join("\n");
}
