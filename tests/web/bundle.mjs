// TypeScript of web/src as a module for Node.
import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { createRequire } from 'node:module';
import { Duplex } from 'node:stream';
import { createInflateRaw, inflateRawSync } from 'node:zlib';

export const root = join(dirname(fileURLToPath(import.meta.url)), '../..');
export const require = createRequire(join(root, 'web/package.json'));
// The program: make test-web says where it was built.
export const program = process.env.CEPHALO ?? join(root, 'build/release/cli/cephalo');

// Browsers have it, Node 18 does not.
try {
  new DecompressionStream('deflate-raw');
} catch {
  globalThis.DecompressionStream = function inflateRaw() {
    return Duplex.toWeb(createInflateRaw());
  };
}

// The engine that the page holds, or another one to put through the same tests.
export const wasm = process.env.CEPHALO_ENGINE_TESTED ? readFileSync(process.env.CEPHALO_ENGINE_TESTED)
  : inflateRawSync(readFileSync(join(root, 'web/dist/engine.wasm.deflate')));

export async function load(path) {
  const esbuild = require('esbuild');
  const outfile = join(mkdtempSync(join(tmpdir(), 'cephalo-web-')), 'module.mjs');
  await esbuild.build({ entryPoints: [join(root, 'web/src', path)], bundle: true, format: 'esm', outfile,
                        platform: 'neutral', logLevel: 'error' });
  return import(pathToFileURL(outfile).href);
}

export async function minified(path) {
  const esbuild = require('esbuild');
  const built = await esbuild.build({ entryPoints: [join(root, 'web/src', path)], bundle: true, minify: true,
                                      format: 'esm', write: false });
  return built.outputFiles[0].contents;
}
