// Adds the style of a panel to the page, once: `import css from "./live.panel.css"; addStyle(css);`
// The server's policy allows no <style>; a sheet that the script makes is not one.
const added = new Set<string>();

export function addStyle(css: string): void {
  if (added.has(css)) return;
  added.add(css);
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(css);
  document.adoptedStyleSheets.push(sheet);
}
