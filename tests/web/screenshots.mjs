// node screenshots.mjs FOLDER [NAME...]: the page in the states that are worth a look, as PNG.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { close, launch, open, rabbit, settle, writePage } from './browser.mjs';

const phone = { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true, deviceScaleFactor: 2 };
const shots = {
  light: ['#head=3.1'],
  dark: ['#head=3.1&theme=dark'],
  phone: ['#head=3.1', phone],
  'phone-compare': ['#head=3.1&tab=compare', phone],
  steps: ['#head=3.1&tab=steps&step=4&theme=dark'],
  lines: ['#head=3.1&tab=lines'],
  'what-if': ['#head=2.3&if=t10&in=2.3&theme=dark'],
  'head-off': ['#head=3.1&off=3.1'],
  compare: ['#head=3.1&tab=compare&with=2.3'],
  'compare-texts': ['#head=3.1&tab=compare&theme=dark&b=Peter+Rabbit+met+Benjamin.+Peter+Rabbit+met+Benjamin.+Peter'],
  'compare-unlike': ['#head=3.1&tab=compare&b=The+cat+sat'],
};

const [folder, ...names] = process.argv.slice(2);
if (!folder) throw new Error('screenshots: into which folder?');
mkdirSync(folder, { recursive: true });
await launch();
try {
  const path = writePage(rabbit);
  for (const name of names.length ? names : Object.keys(shots)) {
    const [hash, options] = shots[name];
    const page = await open(path, hash, options);
    await settle(page);
    await page.screenshot({ path: join(folder, `${name}.png`) });
    await page.context().close();
    console.log(name);
  }
} finally {
  await close();
}
