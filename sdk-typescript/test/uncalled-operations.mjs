// Operations of the API that no test has called.

/**
 * Returns the operations of a description of the API that no request has called with success, by the metrics of the
 * server.
 */
export function uncalledOperations(description, metrics) {
    const called = new Set()
    for (const [, endpoint, status] of metrics.matchAll(
        /^api_request_total\{endpoint="([^"]+)",status="(\d+)"\} [1-9]/gm,
    )) {
        if (Number(status) < 400) called.add(endpoint.replace('{*', '{'))
    }
    return Object.entries(description.paths)
        .flatMap(([path, methods]) => Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`))
        .filter((operation) => !called.has(operation))
        .sort()
}
