// Files that a person has dropped on the page to be explained. They are kept here, not in the address.
import { signal } from "./signal";

export interface Dropped {
  files: readonly File[];
  // Model and machine, and everything else of the configuration, are taken from the files; else from the
  // form at the side.
  fromFiles: boolean;
}
export const dropped = signal<Dropped>({ files: [], fromFiles: true });
export const drop = (files: Iterable<File>) => (dropped.value = { ...dropped.value, files: [...dropped.value.files, ...files] });
export const remove = (file: File) => (dropped.value = { ...dropped.value, files: dropped.value.files.filter((f) => f !== file) });
export const clear = () => (dropped.value = { files: [], fromFiles: true });
