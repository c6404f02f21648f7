// Runs browser tests one after the other: {name: async function}. A test also fails where the page
// reported faults; the view of a test that failed is kept as a picture. Every test runs once: it waits
// for what it needs, on a machine of any speed. `reset` follows a test that failed, so that the next one
// begins as it would have. Returns how many failed.
import assert from "node:assert/strict";

export async function runSuite(tests, { only, faults, page, picture, reset = () => {} }) {
  let failed = 0;
  for (const [name, test] of Object.entries(tests)) {
    if (only && !name.includes(only)) continue;
    const start = Date.now();
    try {
      await test();
      assert.deepEqual(faults.splice(0).slice(0, 3), []);
      console.log(`ok    ${name} (${Date.now() - start} ms)`);
    } catch (error) {
      ++failed;
      console.log(`FAIL  ${name} (${Date.now() - start} ms): ${error.stack}`);
      await page.screenshot(picture).catch(() => {});
      await reset();
      faults.length = 0;
    }
  }
  return failed;
}
