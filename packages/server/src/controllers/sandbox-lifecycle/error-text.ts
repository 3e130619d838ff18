/** The text of an error as conditions show it: the message, never a stack. */
export function errorText(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
