#!/usr/bin/env python3
"""Glossary renames over the tree in the current directory (tracked *.rs, *.md, *.toml, .ci/*)."""
import re, subprocess, sys
files = subprocess.run(['git','ls-files'],capture_output=True,text=True).stdout.split('\n')
rs = [f for f in files if f.endswith('.rs')]
docs = [f for f in files if f.endswith('.md')]
ci = [f for f in files if f.startswith('.ci/') or f.endswith('.sh')]
every = rs + docs + ci
def sub(pairs, where, skip=()):
    n = 0
    for f in where:
        if any(f.startswith(s) for s in skip): continue
        t = open(f).read(); o = t
        for a, b in pairs: t = re.sub(a, b, t)
        if t != o: open(f,'w').write(t); n += 1
    return n
W = lambda s: r'\b'+s+r'\b'
upper = [f for f in rs if not f.startswith(('backend/','images/','text/'))]
# layers
sub([(W('Projection'),'QuantLinear'),(r'(?<!toml::)'+W('Table<B>'),'QuantEmbedding<B>'),(r'Quantised, Table, Weights','Quantised, QuantEmbedding, Weights'),
     (r'RopeScaling, Table, Weights','RopeScaling, QuantEmbedding, Weights'),(r'Rotation, Table, Weights','Rotation, QuantEmbedding, Weights'),
     (W('Table'),'QuantEmbedding')],
    [f for f in rs if f.startswith(('layers/','models/src/llama','models/tests'))])
sub([(W('Weights')+r'(?=::(Dense|Quantised))','MaybeQuantized'),(W('Weights')+r'(?=<(D|Linear|Embedding))','MaybeQuantized'),
     (r'(QuantEmbedding|Projection|QuantLinear), Weights\b',r'\1, MaybeQuantized')],
    [f for f in rs if f.startswith(('layers/src/projection','layers/src/lib','models/'))])
sub([(W('Rotation'),'RopeAngles'),(r'\.turn\(','.apply('),(r'pub fn turn\b','pub fn apply')],[f for f in rs if f.startswith(('layers/','models/'))])
sub([(W('ConvNorm'),'ConvBn'),(W('conv_norm'),'conv_bn'),(W('of_layers'),'per_layer'),(r'AttentionMask::Explicit','AttentionMask::Masked'),
     (W('MOST_TAKEN_BACK'),'MAX_ROLLBACK'),(W('keys_of')+r'(?=\(t)','visible_range'),(r'KvCache::seeing','KvCache::for_window'),(r'pub fn seeing','pub fn for_window'),
     (W('IGNORED'),'IGNORE_INDEX')],[f for f in rs if f.startswith(('layers/','models/','benches/grove','cli/','examples/','tests/','train/'))])
sub([(r'    Explicit\(','    Masked('),(r'pub fn keys_of','pub fn visible_range')],[f for f in rs if f.startswith('layers/')])
sub([(r'CrossEntropy::default\(\)\.each\(','CrossEntropy::default().per_example('),(r'\]\(Self::each\)','](Self::per_example)'),(r'`each`','`per_example`'),
     (r'\.each\((?=logits)','.per_example('),(r'pub fn each<','pub fn per_example<'),(r'self\.each\(','self.per_example(')],
    [f for f in rs if f.startswith(('layers/','cli/','train/','models/','examples/','benches/grove'))])
# generation
sub([(W('Reading')+r'(?! more)','DecodeSession')],[f for f in rs if f.startswith(('models/src/generation','models/tests/generation','models/tests/device','models/tests/draft','cli/src/generation'))])
sub([(W('Reading'),'BatchOptions')],[f for f in rs if f.startswith(('models/src/bert','models/tests/bert','cli/src/bert','examples/bert','cli/src/finetune_bert'))])
sub([(W('generate_on'),'generate_with_cache'),(r'Finish::Watcher','Finish::Callback'),(r'^    Watcher,','    Callback,'),(r'(?m)^    Watcher,','    Callback,')],rs)
sub([(W('watch'),'on_token')],[f for f in rs if f.startswith(('models/src/generation','cli/src/generation','models/tests/device_sampling'))])
# weights
no = ('backend/','transform/')
sub([(W('Checkpoint')+r'(?!\()','TensorFiles')],[f for f in rs+docs if not f.startswith(no)])
sub([(W('Wanted'),'FilePatterns')],[f for f in rs+docs if not f.startswith(('backend/','benches/candle'))])
sub([(W('is_raw'),'is_quantized'),(r'\braw::','quantized::'),(r'mod raw;','mod quantized;'),(r'use crate::raw','use crate::quantized'),(W('raw_view'),'quantized_view')],[f for f in rs if f.startswith('weights/src')])
# train
sub([(W('Checkpoints'),'CheckpointManager'),(W('Progressed'),'RunProgress'),(W('Beginning'),'RunSetup')],[f for f in rs+docs if f.startswith(('train/','cli/','examples/','src/','tests/','docs/','README'))])
sub([(r'(?<!Finish::)'+W('Length')+r'(?=::(Steps|Epochs)|,| \{|;)','Duration')],[f for f in rs if f.startswith(('train/','cli/src/training','cli/src/train','examples/','src/','tests/'))])
sub([(r'pub length: Length','pub length: Duration'),(r'enum Length','enum Duration'),(r'impl Length','impl Duration'),(r'-> Length\b','-> Duration')],[f for f in rs if f.startswith(('train/','cli/'))])
sub([(W('settle'),'read_pending_metrics')],[f for f in rs if f.startswith('train/src/fit')])
sub([(W('Confusion'),'ConfusionMatrix')],[f for f in rs+docs if f.startswith(('train/','cli/','examples/','src/','README','docs/'))])
# images, models, options
sub([(W('Erasing')+r'(?!:? (?:a|random))','RandomErasing'),(W('Convention'),'ResampleCompat')],[f for f in rs if f.startswith(('images/','cli/','examples/','src/','models/','train/'))])
sub([(r'(?<=enum )Problem\b','ProblemType'),(W('Problem')+r'(?=::|\b>|,|\))','ProblemType'),(r'\.labelled\(','.with_labels('),(r'pub fn labelled<','pub fn with_labels<')],[f for f in rs if f.startswith(('models/','cli/','benches/grove','examples/'))])
sub([(r'place\.with_labels\(','place.labelled(')],[f for f in rs if f.startswith('tests/')])
sub([(W('held-out-part'),'val-fraction'),(W('held_out_part'),'val_fraction')],every)
# spelling
sub([(r'uantis(e|a|i)',r'uantiz\1')],every)
