/** `<template>-<sandbox>`, the name of the PersistentVolumeClaim that a Sandbox has for one of its templates. */
export function sandboxClaimName(templateName: string, sandboxName: string): string {
  return `${templateName}-${sandboxName}`;
}
