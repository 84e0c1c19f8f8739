// The application: its host's name on port 3000.
const name = require("os").hostname();
require("http").createServer((request, response) => response.end(`Up ${name}\n`)).listen(3000);
