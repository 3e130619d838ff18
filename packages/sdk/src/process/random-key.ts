/** 16 random hexadecimal digits: 64 bits, so that two callers never choose the same. */
export function randomKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(8));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
