/** A positional argument as the notation of its verb says it is. */
export interface Argument {
  readonly name: string;
  readonly isRequired: boolean;
  /** Takes all that follow. */
  readonly isVariadic: boolean;
}

/** Reads a definition's notation: `<sandbox> [command...]`. */
export function readArguments(notation = ""): Argument[] {
  return notation
    .split(" ")
    .filter((word) => word !== "")
    .map((word) => ({
      name: word.replace(/^[<[]|(?:\.\.\.)?[\]>]$/g, ""),
      isRequired: word.startsWith("<"),
      isVariadic: /\.\.\.[\]>]$/.test(word),
    }));
}
