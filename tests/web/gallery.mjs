// make gallery: the page's pictures in docs/ anew.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from './bundle.mjs';
import { close, launch, open, rabbit, settle, writePage } from './browser.mjs';
import { withPalette } from './palette_png.mjs';

const most = 150_000; // bytes of a picture
const pictures = {
  page: '#head=3.1&theme=dark',
  'page-previous': '#head=2.3&theme=light',
  'page-induction': '#head=3.1&lock=11.4&theme=light',
  'page-sink': '#head=0.4&rows=spread&theme=light',
  'page-unscaled': '#head=3.1&if=unscaled&in=3.1&theme=light',
  'page-unmasked': '#head=3.1&if=nomask&in=all&theme=light',
};

await launch();
try {
  const path = writePage(rabbit);
  for (const [name, hash] of Object.entries(pictures)) {
    const page = await open(path, hash);
    await settle(page);
    const picture = withPalette(await page.screenshot());
    if (picture.length > most) throw new Error(`${name}.png has ${picture.length} bytes, more than ${most}`);
    writeFileSync(join(root, 'docs', `${name}.png`), picture);
    console.log(`docs/${name}.png: ${picture.length} bytes`);
    await page.context().close();
  }
} finally {
  await close();
}
