"""What a model repository is made of: one module per artifact, one Pydantic model per file.

Files that other tools write and read (unknown keys are legal and kept):

    config              config.json: architecture, sizes, rope, token ids, sub-configs; field_types has what the config
                        class of each family takes, config_conditions what else it asks
    generation_config   generation_config.json: decoding defaults
    tokenizer_config    tokenizer_config.json: class, special tokens, limits
    special_tokens_map  special_tokens_map.json: role -> token
    added_tokens        added_tokens.json: token -> id; AddedToken, the object that the tokenizer files share
    tokenizer           tokenizer.json: the outer shape; the vocabulary is not walked
    chat_template       chat_template.json, and the templates inside tokenizer_config.json
    processor           preprocessor_config.json, processor_config.json, video_preprocessor_config.json
    card                the front matter of README.md, model-index included
    adapter             adapter_config.json of PEFT, by method; adapter_types knows the fields of each
    quantization        quantization_config in config.json, by method, and the side files of older quantizers;
                        quantization_methods and compressed_tensors have the methods, quantization_limits what no load
                        survives
    eval_results        .eval_results/*.yaml: scores on benchmarks
    sentence_transformers   modules.json and the files of its modules
    diffusers           model_index.json, scheduler_config.json, config.json of a component
    weight_index        *.index.json: tensor -> shard

Files that repokit writes (closed: an unknown key is an error):

    recipe              repokit.yaml; recipe_file reads it, contradictions checks it, yaml_source finds its lines,
                        recipe_advice says what to write instead; variants has what several repositories of one recipe
                        are, siblings what they are to each other
    license             which license, under what name, in which file
    manifest            repokit-manifest.json: every file with its size and sha256
    report              what `lint --format json` prints
    baseline            what `lint --write-baseline` writes

Behind them:

    document            Document, the root of the models above, and `problems`: a raw document -> what is wrong with it
    export              the models as JSON Schemas, the files in schemas/

A model validates a raw document and describes its fields; it is never written back to a file. Nothing is imported
here: each module costs its own start-up time, and most commands need few of them.
"""
