import { access } from "./cases/access.ts";
import { admissionGroup } from "./cases/admission.ts";
import { serverSideApply } from "./cases/apply.ts";
import { celRules } from "./cases/cel-rules.ts";
import { customKinds } from "./cases/custom-kinds.ts";
import { deletion } from "./cases/deletion.ts";
import { discovery } from "./cases/discovery.ts";
import { events } from "./cases/events.ts";
import { identity } from "./cases/identity.ts";
import { lists } from "./cases/lists.ts";
import { namespacesGroup } from "./cases/namespaces.ts";
import { crud } from "./cases/objects-crud.ts";
import { ownKinds } from "./cases/own-kinds.ts";
import { patches } from "./cases/patches.ts";
import { rehearsal } from "./cases/rehearsal.ts";
import { subresources } from "./cases/subresources.ts";
import { tables } from "./cases/tables.ts";
import { validation } from "./cases/validation.ts";
import { watches } from "./cases/watches.ts";
import type { Group } from "./suite.ts";

/** Every group of the suite. */
export const groups: readonly Group[] = [
  discovery,
  crud,
  subresources,
  patches,
  serverSideApply,
  watches,
  lists,
  deletion,
  namespacesGroup,
  validation,
  customKinds,
  ownKinds,
  celRules,
  access,
  identity,
  tables,
  rehearsal,
  admissionGroup,
  events,
];
