/**
 * The shell of the sandbox's user as its image has it: what /etc/passwd names, unless that is plain `sh` or forbids to log in;
 * then bash where there is one, else sh. The same text is in the Python SDK.
 */
export const loginShell: readonly string[] = [
  "/bin/sh",
  "-c",
  's=; while IFS=: read -r a b u c d e s; do [ "$u" = "$(id -u)" ] && break; s=; done 2>/dev/null </etc/passwd; case $s in "" | */sh | *nologin | *false) s=$(command -v bash || command -v sh) ;; esac; [ -x "$s" ] || s=/bin/sh; exec "$s" -l',
];
