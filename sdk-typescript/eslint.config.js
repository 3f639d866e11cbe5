import js from '@eslint/js'
import tseslint from 'typescript-eslint'

export default tseslint.config(
    { ignores: ['build', 'dist', 'reference', 'runtimes', 'src/generated'] },
    js.configs.recommended,
    {
        files: ['**/*.ts'],
        extends: [tseslint.configs.recommendedTypeChecked],
        languageOptions: {
            parserOptions: { project: ['tsconfig.json', 'test/tsconfig.json'], tsconfigRootDir: import.meta.dirname },
        },
        rules: {
            '@typescript-eslint/explicit-function-return-type': ['error', { allowExpressions: true }],
            '@typescript-eslint/switch-exhaustiveness-check': ['error', { considerDefaultExhaustiveForUnions: true }],
            // Reasons of signals are whatever the caller has given.
            '@typescript-eslint/prefer-promise-reject-errors': 'off',
            '@typescript-eslint/only-throw-error': 'off',
        },
    },
    {
        // `test` and its callbacks return promises that the runner awaits.
        files: ['test/**/*.ts'],
        rules: {
            '@typescript-eslint/no-floating-promises': [
                'error',
                { allowForKnownSafeCalls: [{ from: 'package', name: 'test', package: 'node:test' }] },
            ],
        },
    },
    {
        files: ['**/*.mjs', '**/*.js'],
        languageOptions: {
            globals: Object.fromEntries(
                ['process', 'console', 'URL', 'setTimeout', 'clearTimeout', 'fetch', 'performance'].map((name) => [
                    name,
                    'readonly',
                ]),
            ),
        },
    },
)
