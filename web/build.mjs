// web/dist/page.html: the page without its data, for the program to write it into. Without
// --engine=FILE the engine of web/dist stays.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { deflateRawSync } from 'node:zlib';
import * as esbuild from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const option = (name) => process.argv.find((word) => word.startsWith(`--${name}=`))?.split('=')[1];
const out = option('out') ?? join(here, 'dist');
mkdirSync(out, { recursive: true });

const common = { bundle: true, minify: true, write: false, target: 'es2022', format: 'iife', charset: 'utf8',
                 legalComments: 'none' };

async function bundle(entry, plugins = []) {
  const built = await esbuild.build({ ...common, entryPoints: [join(here, 'src', entry)], plugins });
  return built.outputFiles[0].text.trim();
}

const workerCode = await bundle('engine/worker.ts');
const asText = {
  name: 'worker-code',
  setup(build) {
    build.onResolve({ filter: /^worker:code$/ }, () => ({ path: 'worker', namespace: 'worker' }));
    build.onLoad({ filter: /.*/, namespace: 'worker' }, () => ({ contents: workerCode, loader: 'text' }));
  },
};
const script = (await bundle('main.ts', [asText])).replaceAll('</script', '<\\/script');
const style = await bundle('style.css');
const hash = (text) => `sha256-${createHash('sha256').update(text).digest('base64')}`;

const values = { script, style, 'script-hash': hash(script), 'style-hash': hash(style) };
const page = readFileSync(join(here, 'src', 'page.html'), 'utf8')
  .replace(/\{\{(script|style|script-hash|style-hash)\}\}/g, (_, name) => values[name]);
writeFileSync(join(out, 'page.html'), page);

// What the two files were made with: another version may make other bytes of the same sources.
const tools = readBuild();
tools.esbuild = esbuild.version;
tools.lock = hash(readFileSync(join(here, 'package-lock.json')));
const engine = option('engine');
if (engine) {
  const wasm = readFileSync(engine);
  for (const name of ['6locale', '8ios_base', '13basic_ostream']) {
    if (wasm.includes(`St3__2${name}`)) throw new Error(`${engine} has std::${name.replace(/^\d+/, '')} in it, which nothing needs`);
  }
  writeFileSync(join(out, 'engine.wasm.deflate'), deflateRawSync(wasm, { level: 9 }));
  tools.emscripten = /(\d+\.\d+\.\d+)/.exec(execFileSync('em++', ['--version'], { encoding: 'utf8' }))[1];
}
writeFileSync(join(out, 'BUILD'), ['emscripten', 'esbuild', 'lock'].map((name) => `${name} ${tools[name]}\n`).join(''));

function readBuild() {
  const path = join(here, 'dist', 'BUILD');
  if (!existsSync(path)) return {};
  return Object.fromEntries(readFileSync(path, 'utf8').trim().split('\n').map((line) => line.split(' ')));
}
console.log(`page.html ${page.length} bytes, script ${script.length}, style ${style.length}`);
