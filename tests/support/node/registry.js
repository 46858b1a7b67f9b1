// npm's client of schema registries, told what to do by lines of JSON on stdin; one answer a line.
const readline = require('node:readline')
const { createRequire } = require('node:module')
const installed = createRequire(process.argv[2] + '/')
const { SchemaRegistry } = installed('@kafkajs/confluent-schema-registry')
const registry = new SchemaRegistry({ host: process.argv[3], retry: { retries: 0 } })

const calls = {
  register: async ({ type, schema, subject, references }) =>
    (await registry.register({ type, schema, references }, { subject })).id,
  latest: ({ subject }) => registry.getLatestSchemaId(subject),
  id: ({ type, schema, subject }) => registry.getRegistryIdBySchema(subject, { type, schema }),
  encode: async ({ id, value }) => (await registry.encode(id, value)).toString('base64'),
  decode: ({ bytes }) => registry.decode(Buffer.from(bytes, 'base64')),
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { call, ...given } = JSON.parse(line)
    let told
    try {
      told = { answer: await calls[call](given) }
    } catch (error) {
      told = { error: `${error.name}: ${error.message}` }
    }
    console.log(JSON.stringify(told))
  }
}

main()
