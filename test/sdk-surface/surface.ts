/** The public names of an SDK: `Type`, `Type.member`, `call`, `call(option)`; with the type of a member or of a call's result. */
export type Surface = ReadonlyMap<string, string>;
