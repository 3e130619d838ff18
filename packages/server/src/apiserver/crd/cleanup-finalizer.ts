/** Keeps a deleted CRD until its objects are gone. */
export const cleanupFinalizer = "customresourcecleanup.apiextensions.k8s.io";
