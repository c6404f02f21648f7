// What build.mjs provides.
declare const RIDGE_VERSION: string;
declare const RIDGE_REPORT: boolean; // a report: one file, without panels that need a server

declare module "*.panel.css" {
  const css: string;
  export default css;
}
