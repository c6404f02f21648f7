// Runs browser tests one after the other: {name: async function}. A test also fails where the page
// reported faults, and its last view is kept as a picture. Browsers on busy machines miss moments,
// so a test that fails runs a second time; both outcomes are printed. Returns how many failed twice.
import assert from "node:assert/strict";

export async function runSuite(tests, { only, faults, page, picture, mended = () => {} }) {
  let failed = 0;
  for (const [name, test] of Object.entries(tests)) {
    if (only && !name.includes(only)) continue;
    for (let tries = 1; tries <= 2; ++tries) {
      const start = Date.now();
      try {
        await test();
        assert.deepEqual(faults.splice(0).slice(0, 3), []);
        console.log(`ok    ${name} (${Date.now() - start} ms${tries > 1 ? ", second try" : ""})`);
        break;
      } catch (error) {
        failed += tries - 1;
        console.log(`${tries > 1 ? "FAIL " : "again"} ${name}: ${error.stack}`);
        await page.screenshot(picture).catch(() => {});
        faults.length = 0;
        mended();
      }
    }
  }
  return failed;
}
