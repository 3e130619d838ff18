/** Rules of `packages/api` that are easily written a second time, by the form that such a copy has. */
const copies: readonly { readonly form: RegExp; readonly home: string; readonly use: string }[] = [
  {
    form: /`\$\{[^`{}]*\bnamespace\b[^`{}]*\}\/\$\{[^`{}]*[nN]ame[^`{}]*\}`/,
    home: "packages/api/src/object-key.ts",
    use: "keyOf or namespacedKey",
  },
  {
    form: /[cC]onditions\)?\??\.find\(\(?(?:\{ type \}|\w+)\)? => (?:\w+\.)?type === /,
    home: "packages/api/src/condition.ts",
    use: "findCondition",
  },
  {
    form: /"(?:agents\.x-k8s\.io|agent-sandbox\.dev)\/(?:sandbox-name-hash|claim-uid|warm-pool-sandbox|launch-type|pod-name|last-activity-at|suspended-at)"/,
    home: "packages/api/src/labels.ts",
    use: "labelKeys or annotationKeys",
  },
];

/** Lines of one product file that write a rule of `packages/api` again. */
export function findCopiedRules(file: string, text: string): string[] {
  return text
    .split("\n")
    .flatMap((line, index) =>
      copies
        .filter(({ form, home }) => file !== home && form.test(line) && !line.includes("encodeURIComponent("))
        .map(({ use }) => `${file}:${index + 1} is to use ${use}`),
    );
}
