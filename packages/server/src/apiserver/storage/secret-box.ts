/** Encrypts values at rest. The context (the store key) is authenticated, so that a value cannot be moved to another key. */
export interface SecretBox {
  /** Seals with the newest key; the header names it. */
  encrypt(plaintext: Uint8Array, context: string): Uint8Array;
  /** Opens a sealed value; a value without our header is returned as it is. Throws when the key is unknown or the value was changed. */
  decrypt(value: Uint8Array, context: string): Uint8Array;
  /** Whether the value should be written again: it is plain, or sealed with an older key. */
  isStale(value: Uint8Array): boolean;
}
