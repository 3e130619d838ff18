const offsetBasis = 2166136261;
const prime = 16777619;
const utf8 = new TextEncoder();

/** 32-bit FNV-1a of the UTF-8 bytes of a name, as eight lower-case hex digits: the value of labels that stand for a name. */
export function nameHash(name: string): string {
  let hash = offsetBasis;
  for (const byte of utf8.encode(name)) hash = Math.imul(hash ^ byte, prime);
  return (hash >>> 0).toString(16).padStart(8, "0");
}
