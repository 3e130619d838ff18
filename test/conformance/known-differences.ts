/** Where ours answers otherwise than a real API server, by reason; docs/compatibility.md lists them for users. */
export interface KnownDifference {
  readonly reason: string;
  /** Titles of cases that ours fails; one that passes must leave this list. */
  readonly titles: readonly string[];
}

/** Everything that is known to differ. */
export const knownDifferences: readonly KnownDifference[] = [
  {
    reason:
      "A Sandbox carries its address as an annotation from its first version on: its Pods and its Service share it.",
    titles: ["apply: of a Sandbox", "crud: create of a Sandbox sets the defaults", "patches: merge suspends a Sandbox"],
  },
  {
    reason: "Kubernetes answers an empty log before a Pod has a node; ours says why there is none.",
    titles: ["subresources: log of a Pod without a node is refused"],
  },
  {
    reason: "A mistake of the client, which Kubernetes answers with 500: ours says 400, 409 or 422 and what is wrong.",
    titles: [
      "apply: duplicate keys in a list are refused",
      "apply: of an unknown field is refused",
      "crud: update with an unparsable version is refused",
      "patches: strategic element without its key is refused",
      "watches: an unparsable version is refused",
    ],
  },
  {
    reason:
      "Integers beyond 2^53 are refused: every part counts in doubles, and a number that is rounded in silence is worse.",
    titles: ["custom-kinds: large integers survive"],
  },
  {
    reason: "Refused by both with the same status; a word of the sentence or a warning beside it differs.",
    titles: ["cel-rules: rule substring", "custom-kinds: a wrong version is refused"],
  },
  {
    reason:
      "Lists are the stored bytes one after another, and stored objects say what they are; clients read both alike.",
    titles: ["lists: a list of objects has no kind in its items"],
  },
];
