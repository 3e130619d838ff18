/** The parts of a large interface that the code under test uses. The compiler cannot know which these are, hence the cast; for tests alone. */
export function partOf<T>(parts: object): T {
  return parts as unknown as T;
}
