import { isJsonObject, type JsonObject } from "@agent-sandbox/api";
import { elementText, type PathElement } from "../schema/path-element.ts";

/** A set of field paths as a tree, the in-memory form of FieldsV1. */
export class FieldSet {
  readonly members = new Set<PathElement>();
  readonly children = new Map<PathElement, FieldSet>();

  /** Reads FieldsV1; anything that is no object below a key ends the path there. */
  static parse(fields: JsonObject | undefined): FieldSet {
    const set = new FieldSet();
    for (const [element, below] of Object.entries(fields ?? {})) {
      if (element === ".") continue;
      const child = isJsonObject(below) ? below : {};
      const keys = Object.keys(child);
      if (keys.length === 0 || Object.hasOwn(child, ".")) set.members.add(element);
      if (keys.some((key) => key !== ".")) set.children.set(element, FieldSet.parse(child));
    }
    return set;
  }

  get isEmpty(): boolean {
    if (this.members.size > 0) return false;
    for (const child of this.children.values()) if (!child.isEmpty) return false;
    return true;
  }

  /** The child set below an element, made when it is not there. */
  child(element: PathElement): FieldSet {
    const known = this.children.get(element);
    if (known !== undefined) return known;
    const fresh = new FieldSet();
    this.children.set(element, fresh);
    return fresh;
  }

  /** Writes FieldsV1; empty branches are left out. */
  toFields(): JsonObject {
    const fields: JsonObject = {};
    for (const element of this.#elements()) {
      const child = this.children.get(element);
      const below = child === undefined ? {} : child.toFields();
      const isMember = this.members.has(element);
      if (Object.keys(below).length === 0) {
        if (isMember) fields[element] = {};
      } else fields[element] = isMember ? { ".": {}, ...below } : below;
    }
    return fields;
  }

  #elements(): PathElement[] {
    const elements = [...this.members];
    for (const element of this.children.keys()) if (!this.members.has(element)) elements.push(element);
    return elements.sort();
  }

  /** Paths in this set or the other. */
  union(other: FieldSet): FieldSet {
    const result = new FieldSet();
    for (const member of [...this.members, ...other.members]) result.members.add(member);
    for (const element of new Set([...this.children.keys(), ...other.children.keys()])) {
      const mine = this.children.get(element);
      const theirs = other.children.get(element);
      const child = mine === undefined ? theirs : theirs === undefined ? mine : mine.union(theirs);
      if (child !== undefined) result.children.set(element, child);
    }
    return result;
  }

  /** Paths in this set and not in the other. */
  difference(other: FieldSet): FieldSet {
    const result = new FieldSet();
    for (const member of this.members) if (!other.members.has(member)) result.members.add(member);
    for (const [element, child] of this.children) {
      const theirs = other.children.get(element);
      const rest = theirs === undefined ? child : child.difference(theirs);
      if (!rest.isEmpty) result.children.set(element, rest);
    }
    return result;
  }

  /** Paths in both sets. */
  intersection(other: FieldSet): FieldSet {
    const result = new FieldSet();
    for (const member of this.members) if (other.members.has(member)) result.members.add(member);
    for (const [element, child] of this.children) {
      const theirs = other.children.get(element);
      if (theirs === undefined) continue;
      const shared = child.intersection(theirs);
      if (!shared.isEmpty) result.children.set(element, shared);
    }
    return result;
  }

  /** Whether FieldsV1 and this set share a path; read without making a set of the fields. */
  overlaps(fields: JsonObject | undefined): boolean {
    if (fields === undefined) return false;
    for (const element of this.members) if (Object.hasOwn(fields, element) && isMember(fields[element])) return true;
    for (const [element, child] of this.children) {
      const below = Object.hasOwn(fields, element) ? fields[element] : undefined;
      if (isJsonObject(below) && child.overlaps(below)) return true;
    }
    return false;
  }

  equals(other: FieldSet): boolean {
    return this.difference(other).isEmpty && other.difference(this).isEmpty;
  }

  /** Whether the path or anything below it is in the set. */
  covers(element: PathElement): boolean {
    if (this.members.has(element)) return true;
    const child = this.children.get(element);
    return child !== undefined && !child.isEmpty;
  }

  /** Every path in the set, written as Kubernetes writes conflicts. */
  paths(prefix = ""): string[] {
    const found: string[] = [];
    for (const element of this.#elements()) {
      const path = prefix + elementText(element);
      if (this.members.has(element)) found.push(path);
      found.push(...(this.children.get(element)?.paths(path) ?? []));
    }
    return found;
  }
}

/** Whether the path that ends here is in the set that FieldsV1 describe. */
function isMember(below: JsonObject[string]): boolean {
  return !isJsonObject(below) || Object.hasOwn(below, ".") || Object.keys(below).length === 0;
}
