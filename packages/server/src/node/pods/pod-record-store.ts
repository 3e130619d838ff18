import { RecordStore } from "../record-store.ts";
import type { PodRecord } from "./pod-record.ts";

/** The records of all pods: one JSON file per pod under `sandboxes/<uid>`. */
export class PodRecordStore extends RecordStore<PodRecord> {}
