// One call of the npm client @huggingface/hub, as a command:
//
//     node client.mjs COMMAND '{"hubUrl": ..., "accessToken": ..., "repo": ..., ...}'
//
// prints its result as JSON. The package is looked for in the folder that REPOKIT_NPM names, then beside this file.
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";

const require = createRequire(process.env.REPOKIT_NPM ? `${process.env.REPOKIT_NPM}/` : import.meta.url);
const hub = require("@huggingface/hub");

const sha256 = async (blob) => createHash("sha256").update(Buffer.from(await blob.arrayBuffer())).digest("hex");

const all = async (items) => {
  const found = [];
  for await (const item of items) found.push(item);
  return found;
};

// `files` maps paths in the repository to files of this machine.
const additions = async (files) =>
  Promise.all(
    Object.entries(files ?? {}).map(async ([path, place]) => ({ path, content: new Blob([await readFile(place)]) })),
  );

const commands = {
  whoAmI: async (call) => (await hub.whoAmI(call)).name,
  modelInfo: async (call) => hub.modelInfo({ ...call, name: call.repo, additionalFields: ["sha", "filePaths"] }),
  repoExists: hub.repoExists,
  createRepo: hub.createRepo,
  deleteRepo: hub.deleteRepo,
  createBranch: hub.createBranch,
  deleteBranch: hub.deleteBranch,
  fileExists: hub.fileExists,
  pathsInfo: hub.pathsInfo,
  downloadInfo: hub.fileDownloadInfo,
  listFiles: async (call) => all(hub.listFiles({ ...call, recursive: true })),
  listCommits: async (call) => all(hub.listCommits(call)),
  countCommits: hub.countCommits,
  // Every file of a revision and the sha256 of what was downloaded.
  hashes: async (call) => {
    const files = (await all(hub.listFiles({ ...call, recursive: true }))).filter((entry) => entry.type === "file");
    const hashed = files.map(async ({ path }) => [path, await sha256(await hub.downloadFile({ ...call, path }))]);
    return Object.fromEntries(await Promise.all(hashed));
  },
  // A blob over HTTP is read in ranges.
  slice: async (call) => sha256((await hub.downloadFile(call)).slice(call.start, call.end)),
  snapshot: hub.snapshotDownload,
  tensors: async (call) => (await hub.parseSafetensorsMetadata({ ...call, computeParametersCount: true })).parameterCount,
  upload: async (call) => hub.uploadFiles({ ...call, files: await additions(call.files), commitTitle: call.title }),
  commit: async (call) =>
    hub.commit({
      ...call,
      operations: [
        ...(call.deletions ?? []).map((path) => ({ operation: "delete", path })),
        ...(await additions(call.files)).map((file) => ({ operation: "addOrUpdate", ...file })),
      ],
    }),
};

const [command, call] = process.argv.slice(2);
try {
  const result = await commands[command](JSON.parse(call));
  console.log(JSON.stringify({ result: result ?? null }));
} catch (error) {
  console.log(JSON.stringify({ error: { message: error.message, status: error.statusCode ?? null } }));
}
