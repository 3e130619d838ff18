/** Where ours answers otherwise than a real API server, by reason; docs/compatibility.md lists them for users. */
export interface KnownDifference {
  readonly reason: string;
  /** Titles of cases that ours fails; one that passes must leave this list. */
  readonly titles: readonly string[];
}

/** Everything that is known to differ. */
export const knownDifferences: readonly KnownDifference[] = [
  {
    reason: "One machine has no taints, gives a Sandbox its address and answers for Pods that have no node.",
    titles: [
      "apply: of a Sandbox",
      "crud: create of a Sandbox sets the defaults",
      "patches: merge suspends a Sandbox",
      "subresources: log of a Pod without a node is refused",
    ],
  },
  {
    reason: "A real API server refuses this; ours takes it, and the node or the controller says what is wrong.",
    titles: ["apply: adds a finalizer to a set", "apply: field manager too long is refused"],
  },
  {
    reason: "Refused by both, with another status: ours says 400, 409 or 422 where Kubernetes has 500 or another 4xx.",
    titles: [
      "apply: duplicate keys in a list are refused",
      "apply: of an unknown field is refused",
      "crud: update with an unparsable version is refused",
      "custom-kinds: large integers survive",
      "identity: may somebody here: other namespace is refused",
      "patches: strategic element without its key is refused",
      "watches: an unparsable version is refused",
    ],
  },
  {
    reason: "Refused by both with the same status; the sentence or the causes differ.",
    titles: [
      "cel-rules: rule substring",
      "custom-kinds: a wrong version is refused",
      "discovery: an unknown version of a known group is not found",
      "patches: patch of an unknown type is refused",
      "validation: Pod: wrong JSON type",
    ],
  },
  {
    reason: "The order and the detail of managedFields entries differ; conflicts do not.",
    titles: [],
  },
  {
    reason: "Empty and absent parts of an answer, or their order, differ; clients read both alike.",
    titles: ["custom-kinds: definition: dry run is accepted", "lists: a list of objects has no kind in its items"],
  },
  {
    reason: "Deprecated since Kubernetes 1.11, and no client asks for it.",
    titles: ["watches: deprecated watch path"],
  },
];
